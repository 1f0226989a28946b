#include "mantissa/setup/weights/quantized.h"

#include <algorithm>
#include <atomic>
#include <optional>

#include "mantissa/core/tensor/storage.h"
#include "mantissa/setup/weights/model_files.h"

namespace mantissa::weights {

bool is_finite(const runtime::WeightSet::View& view, std::int64_t elements, const runtime::Device& device) {
  constexpr std::size_t kBlocks = 1 << 13;
  const QuantFormat format = view.quants->format;
  const std::size_t all = quant_bytes(format, static_cast<std::size_t>(elements)),
                    piece = kBlocks * traits(format).bytes, count = (all + piece - 1) / piece;
  std::atomic<bool> finite = true;
  device.parallel_for(static_cast<std::int64_t>(count), [&](std::int64_t i, int) {
    const std::size_t begin = static_cast<std::size_t>(i) * piece, bytes = std::min(piece, all - begin);
    const std::span blocks(reinterpret_cast<const std::uint8_t*>(view.data) + begin, bytes);
    if (first_nonfinite_block(format, blocks) < bytes / traits(format).bytes) finite = false;
  });
  return finite;
}

QuantizedViews::QuantizedViews(const plan::Program& program)
    : program_(program),
      read_(runtime::read_weights(program)),
      quantized_(runtime::quantized_reads(program)) {}

/// A value is rounded once: to the master's format, or to that of a copy of an f32 master. A master with the
/// range of f32 cannot overflow, which loading would report.
bool QuantizedViews::takes(const plan::Slot& slot, plan::BufferId id, bool transposed) const {
  const runtime::QuantizedReads& reads = quantized_[static_cast<std::size_t>(id)];
  if (!(transposed ? reads.transposed : reads.rows)) return false;
  if (id == slot.master_buffer) return traits(slot.master).max_finite >= traits(Scalar::bf16).max_finite;
  return holds(slot.master, Scalar::f32);
}

std::vector<runtime::WeightSet::View> QuantizedViews::of(const plan::Slot& slot, const io::WeightFiles& files,
                                                         std::string_view tensor) const {
  // A program's own blocks are made from the values.
  if (program_.buffer(slot.master_buffer).quants) return {};
  const std::optional<io::QuantizedTensor> stored = files.quantized(tensor);
  if (!stored) return {};
  std::vector<plan::BufferId> all = slot.copies;
  all.push_back(slot.master_buffer);
  std::vector<runtime::WeightSet::View> views;
  for (const plan::BufferId id : all) {
    if (takes(slot, id, stored->layout.transposed)) {
      views.push_back({id, stored->bytes.data(), stored->keep, stored->layout});
    } else if (read_[static_cast<std::size_t>(id)]) {
      return {};
    }
  }
  return views;
}

ReadBytes read_bytes(const plan::Program& program, const ModelSource& source) {
  ReadBytes bytes{std::vector<std::size_t>(program.buffers.size())};
  const std::vector<bool> read = runtime::read_weights(program);
  for (std::size_t b = 0; b < read.size(); ++b) {
    if (read[b]) bytes.of_buffer[b] = aligned(program.buffers[b].bytes);
    bytes.all += bytes.of_buffer[b];
  }
  if (source.tensors == nullptr) return bytes;
  const io::WeightFiles files(source.tensors);
  const QuantizedViews quantized(program);
  for (const plan::Slot& slot : program.slots) {
    const auto views = quantized.of(slot, files, slot.name);
    for (const runtime::WeightSet::View& view : views) {
      std::size_t& of_buffer = bytes.of_buffer[static_cast<std::size_t>(view.buffer)];
      bytes.all -= of_buffer;
      if (of_buffer > 0)
        of_buffer = quant_bytes(view.quants->format, static_cast<std::size_t>(slot.shape.count()));
    }
    // The master and the copies of a slot are the same blocks.
    if (!views.empty())
      bytes.all += quant_bytes(views.front().quants->format, static_cast<std::size_t>(slot.shape.count()));
  }
  return bytes;
}

}  // namespace mantissa::weights
