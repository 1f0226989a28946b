#include "mantissa/files/convert/gguf_in.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "mantissa/core/disk/atomic.h"
#include "mantissa/core/disk/owned.h"
#include "mantissa/core/numeric/convert.h"
#include "mantissa/files/gguf/origin.h"

namespace mantissa::convert {
namespace {

/// Returns true if a cast of the tensor to `format` loses nothing.
bool lies_in(const io::TensorSource& source, const io::TensorInfo& tensor, Scalar format) {
  const Scalar stored = *io::scalar_of(tensor.dtype);
  if (holds(format, stored)) return true;
  std::vector<std::byte> bytes(tensor.end);
  source.read(tensor, bytes, 0);
  const auto n = static_cast<std::size_t>(tensor.count());
  std::vector<double> before(n), after(n);
  load_row(bytes.data(), stored, 0, n, before.data());
  after = before;
  round_row(after.data(), n, format);
  return before == after;
}

/// Writes the config and the files of the tokenizer.
void write_beside(const gguf::ForeignModel& model, const Change& change, const std::filesystem::path& to) {
  const io::Dtype dtype = change.format ? io::dtype_of(*change.format) : dtype_of_model(*model.weights);
  const nlohmann::json config = model::to_json(model.config, std::string(io::torch_name(dtype)));
  disk::write_file_atomic(to / "config.json", config.dump(2) + "\n");
  for (const auto& [name, contents] : model.files) disk::write_file_atomic(to / name, contents);
}

}  // namespace

io::Dtype dtype_of_model(const io::TensorSource& weights) {
  std::optional<Scalar> narrowest;
  for (const io::TensorInfo& tensor : weights.tensors()) {
    const Scalar stored = *io::scalar_of(tensor.dtype);
    if (!narrowest || bytes_of(stored) < bytes_of(*narrowest)) narrowest = stored;
  }
  if (!narrowest) return io::Dtype::f32;
  const bool all = std::ranges::all_of(
      weights.tensors(), [&](const io::TensorInfo& tensor) { return lies_in(weights, tensor, *narrowest); });
  return all ? io::dtype_of(*narrowest) : io::Dtype::f32;
}

gguf::ForeignModel open_gguf(const std::filesystem::path& path) {
  const auto file = std::make_shared<const gguf::GgufFile>(path);
  Metadata metadata = gguf::origin_of(*file);
  metadata["format"] = "pt";
  return gguf::open_model(file, std::move(metadata));
}

std::optional<Result> convert_gguf(const Request& request, const kernels::Context& ctx,
                                   const std::stop_token& stop) {
  const gguf::ForeignModel model = open_gguf(request.in.weights);
  const io::TensorSource& weights = *model.weights;
  std::vector<OutputTensor> outputs;
  for (const io::TensorInfo& tensor : weights.tensors()) outputs.push_back({&tensor, tensor.name});
  std::optional<disk::AtomicDirectory> directory;
  const disk::Target given = disk::given(request.out, request.overwrite);
  if (request.writes_directory()) directory.emplace(given, disk::kModel);
  const disk::Target file = directory ? disk::Target(directory->beside() / request.weights_name()) : given;
  Result result;
  const Metadata metadata = metadata_after(weights.metadata(), outputs, request.change);
  auto done = rewrite_file(weights, outputs, request.container(), file, metadata, request.change, ctx, stop);
  if (!done) return std::nullopt;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    RewrittenTensor& tensor = (*done)[i];
    const gguf::FileTensor& stored = model.weights->stored(*outputs[i].tensor);
    tensor.from_name = stored.type->name;
    const auto count =
        static_cast<std::uint64_t>(outputs[i].tensor->count());  // of an expert's: a part of it
    result.bytes_in += count / stored.type->block * stored.type->bytes;
    result.bytes_out += count * io::bytes_of(tensor.to);
  }
  result.tensors = std::move(*done);
  if (directory) {
    write_beside(model, request.change, directory->beside());
    directory->commit();
  }
  result.notes = model.notes;
  if (const auto origin = weights.metadata().find(kHistoryKey); origin != weights.metadata().end())
    result.notes.push_back(fmt::format("origin: {}", origin->second));
  return result;
}

}  // namespace mantissa::convert
