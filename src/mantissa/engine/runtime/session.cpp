#include "mantissa/engine/runtime/session.h"

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/numeric/convert.h"

namespace mantissa::runtime {

using plan::Buffer;
using plan::BufferId;

namespace {

/// Returns the input called `name`. Throws if it has fewer than `offset` + `count` elements or another type.
const Buffer& input_of(const plan::Program& program, std::string_view name, bool integer, std::int64_t offset,
                       std::size_t count) {
  const Buffer& b = program.buffer(program.required(name));
  if (b.integer != integer) {
    throw InternalError("input \"{}\" of the program holds {}", name, b.integer ? "integers" : "numbers");
  }
  if (offset + static_cast<std::int64_t>(count) > b.shape.count()) {
    throw ShapeError(
        "a run of {} elements of \"{}\" exceeds the program's capacity of {}; compile it for a larger batch",
        offset + static_cast<std::int64_t>(count), name, b.shape.count());
  }
  return b;
}

}  // namespace

Session::Session(std::shared_ptr<const plan::Program> program, std::shared_ptr<WeightSet> weights,
                 std::shared_ptr<Arena> arena)
    : program_(std::move(program)),
      weights_(std::move(weights)),
      arena_(std::move(arena)),
      executor_(*program_, *weights_, arena_.get()) {}

void Session::feed(const Batch& batch) {
  write("ids", batch.ids());
  if (program_->find("targets") != plan::kNoBuffer) write("targets", batch.targets());
}

void Session::write(std::string_view input, std::span<const std::int32_t> values, std::int64_t offset) {
  input_of(*program_, input, true, offset, values.size());
  executor_.hold();
  auto* to = static_cast<std::byte*>(executor_.buffer(input).data);
  device().upload(to + static_cast<std::size_t>(offset) * sizeof(std::int32_t), std::as_bytes(values));
}

void Session::write(std::string_view input, std::span<const double> values) {
  const Buffer& b = input_of(*program_, input, false, 0, values.size());
  executor_.hold();
  rounded_.resize(values.size() * bytes_of(b.type));
  store_row(values.data(), values.size(), rounded_.data(), b.type, 0);
  device().upload(static_cast<std::byte*>(executor_.buffer(input).data), rounded_);
}

void Session::run(graph::Phase phase, const Extent& extent, bool accumulate) {
  executor_.run(phase, extent, accumulate);
}

Values Session::read(std::string_view output, std::int64_t count) const {
  const BufferId id = program_->required(output);
  const Buffer& b = program_->buffer(id);
  if (b.integer || bytes_of(b.type) < sizeof(float) || count > b.shape.count()) {
    throw InternalError("{} elements of output \"{}\", which is {} {}, cannot be read", count, output,
                        b.shape.str(), b.integer ? "integers" : name(b.type));
  }
  return read(id, count);
}

Values Session::read(BufferId id, std::int64_t count) const {
  executor_.require_held();
  const Matrix m = executor_.buffer(id);
  if (m.ld != program_->buffer(id).shape.last()) {
    throw InternalError("\"{}\" is a view of columns of another buffer and cannot be read alone",
                        program_->buffer(id).name);
  }
  auto staging = std::make_shared<std::vector<std::byte>>();
  const std::span<const std::byte> bytes = device().view(
      static_cast<const std::byte*>(m.data), static_cast<std::size_t>(count) * bytes_of(m.type), *staging);
  return {bytes, m.type, m.ld, std::move(staging)};
}

}  // namespace mantissa::runtime
