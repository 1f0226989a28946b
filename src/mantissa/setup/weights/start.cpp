#include "mantissa/setup/weights/start.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <vector>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/disk/file.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/kernels/loss_count.h"

namespace mantissa::weights {

namespace {

constexpr const char *kBase = "mantissa.base", *kPolicy = "mantissa.policy", *kFixed = "mantissa.fixed_xxh64",
                     *kFrozen = "mantissa.frozen_xxh64", *kFiles = "mantissa.files_xxh64";

io::SafetensorsReader opened(const std::filesystem::path& path) {
  try {
    return io::SafetensorsReader(path);
  } catch (const disk::ReadError&) {
    throw;
  } catch (const FileError&) {
    if (!disk::is_file(path)) throw;
    throw FileError(
        "{}: is damaged. It has the weights with which the run began, for measurements and for the base of an "
        "adapter. Fix: remove it; the run continues without it",
        path.string());
  }
}

}  // namespace

void save_start(const std::filesystem::path& path, const runtime::WeightSet& weights, const StartBase& base) {
  std::vector<io::TensorToWrite> tensors;
  const std::vector<plan::Slot>& slots = weights.program().slots;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].fixed || weights.program().buffer(slots[i].master_buffer).quants) continue;
    const auto fill = [&weights, i, id = slots[i].master_buffer](std::uint64_t offset,
                                                                 std::span<std::byte> out) {
      std::vector<std::byte> staging;
      const std::span<const std::byte> from =
          weights.view_master(i, static_cast<std::size_t>(offset), out.size(), staging);
      std::ranges::copy(from, out.begin());
      weights.release_unread(id, from);
    };
    tensors.push_back({slots[i].name, io::dtype_of(slots[i].master), slots[i].shape.sizes(), {}, fill});
  }
  std::map<std::string, std::string> metadata;
  const bool frozen = !base.path.empty() && (!base.fixed.empty() || !base.frozen.empty());
  if (frozen) metadata = {{kBase, base.path}, {kPolicy, base.policy}};
  if (frozen && !base.fixed.empty()) metadata.emplace(kFixed, base.fixed);
  if (frozen && !base.frozen.empty()) metadata.emplace(kFrozen, base.frozen);
  if (frozen && !base.files.empty()) metadata.emplace(kFiles, base.files);
  io::write_safetensors(path, tensors, metadata);
}

StartWeights::StartWeights(const std::filesystem::path& path) : file_(opened(path)) {}

StartBase StartWeights::base() const {
  const auto of = [&](const char* key) {
    const auto found = file_.metadata().find(key);
    return found == file_.metadata().end() ? std::string() : found->second;
  };
  return {of(kBase), of(kPolicy), of(kFixed), of(kFrozen), of(kFiles)};
}

void StartWeights::check_base(const StartBase& now) const {
  const StartBase start = base();
  if (start.policy != now.policy) return;
  const auto check = [&](const std::string& before, const std::string& hash) {
    if (before.empty() || hash.empty() || before == hash) return;
    throw FileError(
        "{}: expected the frozen weights with which the run began, {} with the hash {}, got {} with the "
        "hash {}: the base has changed. Fix: restore it, or start over with --overwrite",
        file_.path().string(), start.path, before, now.path, hash);
  };
  check(start.fixed, now.fixed);
  check(start.frozen, now.frozen);
}

std::optional<std::int64_t> StartWeights::unchanged(const plan::Slot& slot, ConstMatrix master,
                                                    const runtime::Device& device) const {
  constexpr std::int64_t kPart = 1 << 13;
  const io::TensorInfo* info = file_.find(slot.name);
  const std::int64_t count = slot.shape.count();
  if (info == nullptr || info->count() != count || !io::scalar_of(info->dtype)) return std::nullopt;
  const Scalar type = *io::scalar_of(info->dtype);
  std::atomic<std::int64_t> equal = 0;
  device.parallel_for((count + kPart - 1) / kPart, [&](std::int64_t part, int) {
    alignas(64) std::byte start[kPart * sizeof(double)];
    std::vector<std::byte> staging;
    const std::int64_t first = part * kPart, n = std::min(kPart, count - first);
    const auto bytes = [&](std::int64_t elements, Scalar s) {
      return static_cast<std::size_t>(elements) * bytes_of(s);
    };
    file_.read(*info, std::span(start).first(bytes(n, type)), bytes(first, type));
    const auto* now = static_cast<const std::byte*>(master.data) + bytes(first, master.type);
    equal += kernels::count_equal(device.serial(), n, start, type,
                                  device.view(now, bytes(n, master.type), staging).data(), master.type);
  });
  return equal.load();
}

}  // namespace mantissa::weights
