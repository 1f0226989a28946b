#include "mantissa/text/rows/token_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/disk/file.h"
#include "mantissa/text/rows/id_dtype.h"
#include "mantissa/text/rows/shard_header.h"

namespace mantissa::text {

struct TokenFile::Open {
  explicit Open(std::string name)
      : path(std::move(name)), file(disk::File::open_to_read(path)), bytes(file.size()) {}

  std::string path;
  disk::File file;
  std::uint64_t bytes = 0;
};

namespace {

std::uint64_t little_endian(const unsigned char* bytes, std::size_t width) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < width; ++i) value |= static_cast<std::uint64_t>(bytes[i]) << (8 * i);
  return value;
}

/// Returns a number of `width` bytes as it prints if it has a sign.
std::int64_t with_sign(std::uint64_t value, std::size_t width) {
  const std::size_t unused = 64 - 8 * width;
  return static_cast<std::int64_t>(value << unused) >> unused;
}

/// Returns the bytes of a raw id.
std::size_t width_of(IdType type, std::int64_t vocabulary) {
  if (type != IdType::automatic) return type == IdType::uint16 ? 2 : 4;
  return vocabulary < 65536 ? 2 : 4;
}

/// Throws DtypeError if the first bytes look like another format.
void refuse_strangers(const std::string& path, std::span<const std::byte> begin, std::int64_t vocabulary,
                      std::size_t bits) {
  const auto stranger = stranger_among_ids(begin, vocabulary);
  if (!stranger) return;
  throw DtypeError(
      "\"{0}\": {1}, but a token file holds little-endian uint{2} for a vocabulary of {3}, without a header; "
      "write it with ids.astype(numpy.uint{2}).tofile(path) in NumPy, or use the text itself as data",
      path,
      *stranger == ".npy" ? "is a NumPy array with its header" : fmt::format("holds ids as {}", *stranger),
      bits, vocabulary);
}

}  // namespace

TokenFile::TokenFile(const std::string& path, std::int64_t vocabulary, IdType type)
    : file_(std::make_shared<Open>(path)), vocabulary_(vocabulary), width_(width_of(type, vocabulary)) {
  constexpr std::uint64_t kLook = 2048;
  std::vector<unsigned char> begin(static_cast<std::size_t>(std::min(kLook, file_->bytes)));
  read_bytes(0, begin);
  const std::span<const std::byte> look = std::as_bytes(std::span(begin));
  read_header(look);
  if (offset_ > 0) return;
  refuse_strangers(path, look, vocabulary, 8 * width_);
  if (file_->bytes % width_ != 0) {
    throw FileError(
        type == IdType::automatic
            ? fmt::format("\"{0}\": {1} bytes are not whole uint{2} ids; a vocabulary of {3} needs "
                          "little-endian uint{2}, unless data.id_type says otherwise",
                          path, file_->bytes, 8 * width_, vocabulary)
            : fmt::format("\"{0}\": expected whole ids of data.id_type = \"uint{1}\", got {2} bytes. Fix: "
                          "set data.id_type to the type of the file's ids",
                          path, 8 * width_, file_->bytes));
  }
  count_ = static_cast<std::int64_t>(file_->bytes / width_);
}

TokenFile::TokenFile(const BinidxPair& pair, std::int64_t vocabulary)
    : file_(std::make_shared<Open>(pair.bin)),
      vocabulary_(vocabulary),
      index_(std::in_place, pair.idx, file_->bytes) {
  count_ = index_->tokens();
  width_ = index_->width();
}

std::vector<std::int64_t> TokenFile::document_begins() const {
  return index_ ? index_->document_begins() : std::vector<std::int64_t>();
}

void TokenFile::read_header(std::span<const std::byte> begin) {
  if (begin.size() < 8) return;
  const std::int32_t magic = header_word(begin, 0), version = header_word(begin, 1);
  const bool narrow = magic == ShardHeader::kNarrowMagic, wide = magic == ShardHeader::kWideMagic;
  if (!narrow && !wide) return;
  const std::int32_t expected = narrow ? ShardHeader::kNarrowVersion : ShardHeader::kWideVersion;
  if (version != expected) {
    throw FileError("\"{}\": begins like a shard of llm.c, but its version is {}; supported is {}", path(),
                    version, expected);
  }
  if (begin.size() < ShardHeader::kBytes) {
    throw FileError(
        "\"{}\": the header of a shard of llm.c has {} bytes, but the file ends at "
        "byte {}. Fix: copy or write the file again",
        path(), ShardHeader::kBytes, begin.size());
  }
  offset_ = ShardHeader::kBytes;
  width_ = narrow ? 2 : 4;
  count_ = header_word(begin, ShardHeader::kCount);
  const std::uint64_t bytes =
      offset_ + width_ * static_cast<std::uint64_t>(std::max<std::int64_t>(count_, 0));
  if (count_ < 0 || bytes != file_->bytes) {
    throw FileError(
        "\"{}\": its header states {} ids of uint{}, which makes {} bytes, but the "
        "file has {}. Fix: copy or write the file again",
        path(), count_, 8 * width_, bytes, file_->bytes);
  }
  const std::int32_t separator = header_word(begin, ShardHeader::kSeparator);
  if (separator > 0 && separator <= vocabulary_) separator_ = separator - 1;
}

const std::string& TokenFile::path() const {
  return file_->path;
}

void TokenFile::read_bytes(std::uint64_t offset, std::span<unsigned char> out) const {
  file_->file.read_at(offset, std::as_writable_bytes(out));
}

void TokenFile::refuse_id(std::uint64_t id, std::uint64_t at) const {
  const bool sign = index_->has_sign();
  throw FileError(
      "\"{}\": expected ids from 0 to {} (the vocabulary has {} entries), got {} at position {} (as {}int{} "
      "of its index). Fix: use the model, or the tokenizer, that the data were made for",
      path(), vocabulary_ - 1, vocabulary_,
      sign ? fmt::format("{}", with_sign(id, width_)) : fmt::format("{}", id), at, sign ? "" : "u",
      8 * width_);
}

void TokenFile::read(std::int64_t first, std::span<std::int32_t> out) const {
  constexpr std::size_t kBuffer = std::size_t{1} << 13;
  std::array<unsigned char, kBuffer> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init): is read into
  const std::size_t most = kBuffer / width_;
  for (std::size_t done = 0; done < out.size();) {
    const std::size_t batch = std::min(most, out.size() - done);
    const std::uint64_t at = static_cast<std::uint64_t>(first) + done;
    read_bytes(offset_ + at * width_, std::span(buffer).first(batch * width_));
    for (std::size_t i = 0; i < batch; ++i) {
      const std::uint64_t id = little_endian(&buffer[i * width_], width_);
      const bool negative = index_ && index_->has_sign() && with_sign(id, width_) < 0;
      if (negative || id >= static_cast<std::uint64_t>(vocabulary_)) {
        if (index_) refuse_id(id, at + i);
        throw FileError(
            "\"{}\": id {} at position {} is not below the vocabulary size {} "
            "(read as little-endian uint{}); check that the file was written for this "
            "vocabulary and with this id width, which data.id_type sets for raw ids",
            path(), id, at + i, vocabulary_, 8 * width_);
      }
      out[done + i] = static_cast<std::int32_t>(id);
    }
    done += batch;
  }
}

}  // namespace mantissa::text
