#include "mantissa/text/rows/byte_reader.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/disk/file.h"

namespace mantissa::text {

/// The bytes of the file itself. They are as many as it had when it was opened.
class ByteReader::RawFile {
 public:
  explicit RawFile(const std::string& path)
      : path_(path), file_(disk::File::open_to_read(path)), bytes_(file_.size()) {}

  /// Fills `out`, or as much of it as the rest of the file has.
  std::size_t read(char* out, std::size_t count) {
    const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(count, bytes_ - at_));
    file_.read_at(at_, std::as_writable_bytes(std::span(out, wanted)));
    at_ += wanted;
    return wanted;
  }

  const std::string& path() const { return path_; }
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t at() const { return at_; }

  void rewind() { at_ = 0; }

 private:
  std::string path_;
  disk::File file_;
  std::uint64_t bytes_ = 0, at_ = 0;
};

/// A compressed stream.
class ByteReader::Decompressor {
 public:
  explicit Decompressor(RawFile& file, const char* format) : file_(file), format_(format) {}
  virtual ~Decompressor() = default;

  std::size_t read(char* out, std::size_t count) {
    std::size_t done = 0;
    while (done < count && !ended_) {
      if (at_ == end_ && !pending_) refill();
      const std::size_t made = step(out + done, count - done);
      done += made;
      pending_ = within_ && done == count;
    }
    return done;
  }

 protected:
  /// Decodes input from next() on. Returns the number of bytes written; calls take() and end_part().
  virtual std::size_t step(char* out, std::size_t room) = 0;

  const char* next() const { return buffer_.data() + at_; }
  std::size_t available() const { return end_ - at_; }
  void take(std::size_t bytes) {
    at_ += bytes;
    if (bytes > 0) within_ = true;
  }
  /// The input ended a part: a file may have several, one after the other.
  void end_part() { within_ = false; }
  [[noreturn]] void damaged(std::string_view why) const {
    throw FileError(
        "\"{}\": damaged {} data before byte {} of the file ({}). Fix: copy or download the file again",
        file_.path(), format_, position(), why);
  }

 private:
  std::uint64_t position() const { return file_.at() - available(); }

  void refill() {
    at_ = 0;
    end_ = file_.read(buffer_.data(), buffer_.size());
    if (end_ > 0) return;
    if (within_ || file_.bytes() == 0) {
      throw FileError(
          "\"{}\": the {} data end early, at byte {} of the file. Fix: copy or download the file again",
          file_.path(), format_, file_.bytes());
    }
    ended_ = true;
  }

  RawFile& file_;
  const char* format_;
  std::array<char, std::size_t{1} << 16> buffer_{};
  std::size_t at_ = 0, end_ = 0;
  bool within_ = false;  // a part has begun and not ended
  bool ended_ = false;
  bool pending_ = false;  // the output was full, so more may follow without input
};

namespace {

class GzipDecompressor : public ByteReader::Decompressor {
 public:
  explicit GzipDecompressor(ByteReader::RawFile& file) : Decompressor(file, "gzip") {
    constexpr int kWindow = 15, kGzipOnly = 16;
    if (inflateInit2(&stream_, kWindow + kGzipOnly) != Z_OK) throw ResourceError("zlib cannot be started");
  }
  ~GzipDecompressor() override { inflateEnd(&stream_); }
  GzipDecompressor(const GzipDecompressor&) = delete;
  GzipDecompressor& operator=(const GzipDecompressor&) = delete;

 private:
  std::size_t step(char* out, std::size_t room) override {
    constexpr std::size_t kMost = std::size_t{1} << 30;
    const auto given = static_cast<uInt>(available()), space = static_cast<uInt>(std::min(room, kMost));
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(next()));
    stream_.avail_in = given;
    stream_.next_out = reinterpret_cast<Bytef*>(out);
    stream_.avail_out = space;
    const int result = inflate(&stream_, Z_NO_FLUSH);
    take(given - stream_.avail_in);
    if (result == Z_STREAM_END) {
      end_part();
      inflateReset(&stream_);
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      damaged(stream_.msg == nullptr ? "not gzip" : stream_.msg);
    }
    return space - stream_.avail_out;
  }

  z_stream stream_{};
};

class ZstdDecompressor : public ByteReader::Decompressor {
 public:
  explicit ZstdDecompressor(ByteReader::RawFile& file)
      : Decompressor(file, "zstd"), stream_(ZSTD_createDStream()) {
    if (stream_ == nullptr) throw ResourceError("zstd cannot be started");
  }
  ~ZstdDecompressor() override { ZSTD_freeDStream(stream_); }
  ZstdDecompressor(const ZstdDecompressor&) = delete;
  ZstdDecompressor& operator=(const ZstdDecompressor&) = delete;

 private:
  std::size_t step(char* out, std::size_t room) override {
    ZSTD_inBuffer in{next(), available(), 0};
    ZSTD_outBuffer made{out, room, 0};
    const std::size_t result = ZSTD_decompressStream(stream_, &made, &in);
    if (ZSTD_isError(result) != 0) damaged(ZSTD_getErrorName(result));
    take(in.pos);
    if (result == 0) end_part();
    return made.pos;
  }

  ZSTD_DStream* stream_;
};

constexpr std::array<std::string_view, 2> kCompressed{".gz", ".zst"};

}  // namespace

std::string_view without_compression(std::string_view path) {
  for (const std::string_view end : kCompressed) {
    if (path.ends_with(end)) return path.substr(0, path.size() - end.size());
  }
  return path;
}

ByteReader::ByteReader(const std::string& path) : file_(std::make_unique<RawFile>(path)) {
  if (path.ends_with(".gz")) decompressor_ = std::make_unique<GzipDecompressor>(*file_);
  if (path.ends_with(".zst")) decompressor_ = std::make_unique<ZstdDecompressor>(*file_);
  if (decompressor_) return;
  std::array<char, 4> begin{};
  const std::size_t count = file_->read(begin.data(), begin.size());
  file_->rewind();
  if (std::string_view(begin.data(), count) != "PAR1") return;
  const std::string out = std::filesystem::path(path).replace_extension(".jsonl").string();
  throw FileError(
      "\"{0}\" is a Parquet file, which this version does not read. Fix: write JSON lines, for example by "
      "python3 -c 'import pandas; pandas.read_parquet(\"{0}\", columns=[\"text\"]).to_json(\"{1}\", "
      "orient=\"records\", lines=True)' (needs pip install pandas pyarrow), and use {1}",
      path, out);
}

ByteReader::~ByteReader() = default;

std::size_t ByteReader::read(char* out, std::size_t count) {
  return decompressor_ ? decompressor_->read(out, count) : file_->read(out, count);
}

const std::string& ByteReader::path() const {
  return file_->path();
}
std::uint64_t ByteReader::file_bytes() const {
  return file_->bytes();
}
std::uint64_t ByteReader::consumed() const {
  return file_->at();
}
bool ByteReader::compressed() const {
  return decompressor_ != nullptr;
}

std::string read_all_bytes(const std::string& path) {
  constexpr std::size_t kStep = std::size_t{1} << 20;
  ByteReader reader(path);
  std::string text;
  if (!reader.compressed()) text.reserve(reader.file_bytes() + 1);
  for (std::size_t got = kStep; got == kStep;) {
    const std::size_t size = text.size();
    text.resize(size + kStep);
    got = reader.read(text.data() + size, kStep);
    text.resize(size + got);
  }
  return text;
}

}  // namespace mantissa::text
