#include "mantissa/files/io/pth/torch_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/printable.h"
#include "mantissa/core/disk/file.h"
#include "mantissa/files/io/json.h"
#include "mantissa/files/io/pth/failure.h"
#include "mantissa/files/io/pth/state_dict.h"
#include "mantissa/files/io/pth/zip.h"
#include "mantissa/files/io/safetensors_header.h"

namespace mantissa::io::pth {
namespace {

constexpr const char* kNewCopy = "download or write it again";
constexpr const char* kSaveAgain =
    "load and save it again with torch 1.6 or later: torch.save(torch.load(IN), OUT)";
// Expanded tensors repeat elements of their storage, so that a small file may describe large ones.
constexpr std::uint64_t kMostRepeats = 16, kSmallBytes = std::uint64_t{256} << 20;

/// The entries of an archive without the folder that all of them are in.
class Archive {
 public:
  Archive(std::span<const std::byte> file, const std::string& where)
      : file_(file), where_(where), entries_(parse_zip(file, where)) {
    constexpr std::string_view kPickle = "/data.pkl";
    std::string folder;
    for (const ZipEntry& entry : entries_) {
      const std::string_view name = entry.name;
      if (!name.ends_with(kPickle) || name.find('/') != name.size() - kPickle.size()) continue;
      if (!folder.empty()) fail("contains several checkpoints");
      folder = name.substr(0, name.size() - kPickle.size() + 1);
    }
    if (folder.empty()) fail("is a zip archive without data.pkl, so it is not a checkpoint of PyTorch");
    for (const ZipEntry& entry : entries_) {
      const std::string_view name = entry.name;
      if (name.starts_with(folder)) by_name_.emplace(name.substr(folder.size()), &entry);
    }
    if (find("constants.pkl") != nullptr) {
      fail("is a TorchScript program",
           "in Python, save its tensors: torch.save(torch.jit.load(IN).state_dict(), OUT)");
    }
    if (const ZipEntry* order = find("byteorder"); order != nullptr && text(*order) != "little")
      fail(fmt::format("its values are {}-endian", name_in_quotes(text(*order).substr(0, 16))),
           "load and save it again on a little-endian machine");
  }

  [[noreturn]] void fail(std::string_view what, std::string_view cure = kSaveTensors) const {
    fail_file(where_, what, cure);
  }

  const ZipEntry* find(std::string_view name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : found->second;
  }
  const ZipEntry& storage(std::string_view key) const {
    const ZipEntry* entry = find(fmt::format("data/{}", key));
    if (entry == nullptr) fail(fmt::format("has no storage {}", name_in_quotes(key)), kNewCopy);
    return *entry;
  }
  std::span<const std::byte> bytes(const ZipEntry& entry) const {
    return file_.subspan(entry.begin, entry.size);
  }
  std::string_view text(const ZipEntry& entry) const {
    const std::span<const std::byte> all = bytes(entry);
    return {reinterpret_cast<const char*>(all.data()), all.size()};
  }

 private:
  std::span<const std::byte> file_;
  const std::string& where_;
  std::vector<ZipEntry> entries_;
  std::unordered_map<std::string_view, const ZipEntry*> by_name_;
};

/// Returns the index of the tensor's last element in its storage, or null if it exceeds 63 bits. No dimension
/// may be zero.
std::optional<std::uint64_t> last_element(const PickledTensor& tensor) {
  std::int64_t last = tensor.offset, reach = 0;
  for (std::size_t d = 0; d < tensor.shape.size(); ++d) {
    if (__builtin_mul_overflow(tensor.shape[d] - 1, tensor.strides[d], &reach)) return std::nullopt;
    if (__builtin_add_overflow(last, reach, &last)) return std::nullopt;
  }
  return static_cast<std::uint64_t>(last);
}

bool is_contiguous(const PickledTensor& tensor) {
  std::int64_t expected = 1;
  for (std::size_t d = tensor.shape.size(); d-- > 0;) {
    if (tensor.shape[d] != 1 && tensor.strides[d] != expected) return false;
    expected *= tensor.shape[d];
  }
  return true;
}

std::map<std::string, std::string> metadata_of(const Archive& archive, const std::filesystem::path& path) {
  const ZipEntry* entry = archive.find(kMetadataEntry);
  std::map<std::string, std::string> metadata;
  if (entry == nullptr) return metadata;
  if (entry->size > kLargestHeader) archive.fail("its entry mantissa.json is too large");
  const nlohmann::json json = parse_json(std::string(archive.text(*entry)), path / kMetadataEntry);
  if (!json.is_object()) archive.fail("its entry mantissa.json is not an object");
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) archive.fail("its entry mantissa.json has a value that is not a string");
    metadata.emplace(key, value.get<std::string>());
  }
  return metadata;
}

void check_magic(std::span<const std::byte> file, const std::string& where) {
  const std::string_view begin(reinterpret_cast<const char*>(file.data()),
                               std::min<std::size_t>(file.size(), 4));
  if (begin.starts_with("PK")) return;
  if (begin.empty()) fail_file(where, "is empty", kNewCopy);
  if (begin.starts_with("\x80") && begin.size() > 1 && begin[1] <= 5)
    fail_file(where, "is in PyTorch's old format", kSaveAgain);
  fail_file(where, "is not a zip archive, so it is not a checkpoint of PyTorch", kSaveAgain);
}

}  // namespace

bool is_torch_file(const std::filesystem::path& path) {
  const disk::File file = disk::File::open_to_read(path);
  std::array<char, 9> first{};
  file.read_at(
      0, std::as_writable_bytes(std::span(first).first(std::min<std::uint64_t>(file.size(), first.size()))));
  const std::string_view begin(first.data(), first.size());
  if (begin.starts_with("PK\x03\x04")) return true;
  if (begin.back() == '{' || begin.starts_with("version")) return false;  // safetensors, git lfs
  const std::filesystem::path end = path.extension();
  return end == ".pth" || end == ".pt" || end == ".bin" || end == ".ckpt";
}

TorchFile::TorchFile(const std::filesystem::path& path) : path_(path) {
  const std::string where = path.string();
  mapping_ = std::make_shared<const disk::Mapping>(disk::File::open_to_read(path));
  check_magic(mapping_->bytes(), where);
  const Archive archive(mapping_->bytes(), where);
  metadata_ = metadata_of(archive, path);
  const Pickle pickle = parse_pickle(archive.bytes(*archive.find("data.pkl")), where);
  StateDict dict = state_dict_of(pickle, where);
  notes_ = std::move(dict.notes);
  const std::uint64_t file_bytes = mapping_->bytes().size();
  std::uint64_t sum = 0;
  for (NamedTensor& named : dict.tensors) {
    const PickledTensor& t = *named.tensor;
    const auto fail = [&](const std::string& what) {
      archive.fail(fmt::format("tensor {} {}", name_in_quotes(named.name), what), kNewCopy);
    };
    if (t.negated || t.conjugated) {
      archive.fail(fmt::format("tensor {} has PyTorch's {} bit, which is not supported",
                               name_in_quotes(named.name), t.negated ? "negative" : "conjugate"),
                   "in Python, save tensor.resolve_conj().resolve_neg() instead");
    }
    const std::optional<std::uint64_t> bytes = byte_size(t.shape, t.dtype);
    if (!bytes) fail("has a shape with too many elements");
    const ZipEntry& entry = archive.storage(t.storage);
    if (entry.size < t.storage_bytes)
      fail(fmt::format("needs a storage of {} bytes, but that has {}", t.storage_bytes, entry.size));
    const std::uint64_t width = bytes_of(t.dtype), elements = t.storage_bytes / width;
    Stored stored{entry.begin, entry.begin, t.strides, *bytes == 0 || is_contiguous(t)};
    if (*bytes > 0) {
      const std::optional<std::uint64_t> last = last_element(t);
      if (!last || *last >= elements)
        fail(fmt::format("reaches beyond its storage of {} elements", elements));
      stored.begin += static_cast<std::uint64_t>(t.offset) * width;
    }
    sum += std::min(*bytes, UINT64_MAX - sum);
    if (sum > kSmallBytes && sum / kMostRepeats > file_bytes)
      fail(fmt::format("brings the tensors to {} bytes, but the file has {}", sum, file_bytes));
    by_name_.emplace(named.name, tensors_.size());
    tensors_.push_back({std::move(named.name), t.dtype, t.shape, 0, *bytes});
    stored_.push_back(std::move(stored));
  }
}

const TorchFile::Stored& TorchFile::stored(const TensorInfo& tensor) const {
  const auto found = by_name_.find(tensor.name);
  if (found == by_name_.end())
    throw FileError("{}: has no tensor {}", path_.string(), name_in_quotes(tensor.name));
  return stored_[found->second];
}

std::span<const std::byte> TorchFile::in_memory(const TensorInfo& tensor) const {
  const Stored& at = stored(tensor);
  return at.contiguous ? mapping_->bytes().subspan(at.begin, tensor.end) : std::span<const std::byte>();
}

std::vector<std::string> TorchFile::same_as(const TensorInfo& tensor) const {
  const Stored& at = stored(tensor);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const TensorInfo& other = tensors_[i];
    if (tensor.end > 0 && stored_[i].begin == at.begin && other.dtype == tensor.dtype &&
        other.shape == tensor.shape && stored_[i].strides == at.strides && other.name != tensor.name)
      names.push_back(other.name);
  }
  return names;
}

std::optional<TensorSource::View> TorchFile::view_of(const TensorInfo& tensor) const {
  const Stored& at = stored(tensor);
  return View{at.storage, at.begin, at.contiguous ? std::vector<std::int64_t>() : at.strides};
}

void TorchFile::read(const TensorInfo& tensor, std::span<std::byte> out, std::uint64_t offset) const {
  if (offset > tensor.end || out.size() > tensor.end - offset) {
    throw ShapeError("{}: tensor {} has {} bytes, but {} from byte {} on were requested", path_.string(),
                     name_in_quotes(tensor.name), tensor.end, out.size(), offset);
  }
  if (out.empty()) return;
  const Stored& at = stored(tensor);
  const std::byte* const first = mapping_->bytes().data() + at.begin;
  if (at.contiguous) {
    std::copy_n(first + offset, out.size(), out.begin());
    return;
  }
  const std::size_t width = bytes_of(tensor.dtype), dims = tensor.shape.size();
  std::vector<std::int64_t> index(dims);
  auto element = static_cast<std::int64_t>(offset / width);
  for (std::size_t d = dims; d-- > 0; element /= tensor.shape[d]) index[d] = element % tensor.shape[d];
  std::int64_t from = 0;
  for (std::size_t d = 0; d < dims; ++d) from += index[d] * at.strides[d];
  std::size_t skip = offset % width;
  for (std::size_t done = 0; done < out.size(); skip = 0) {
    const std::size_t n = std::min(width - skip, out.size() - done);
    std::copy_n(first + static_cast<std::size_t>(from) * width + skip, n, out.data() + done);
    done += n;
    for (std::size_t d = dims; d-- > 0;) {
      from += at.strides[d];
      if (++index[d] < tensor.shape[d]) break;
      from -= at.strides[d] * tensor.shape[d];
      index[d] = 0;
    }
  }
}

}  // namespace mantissa::io::pth
