#include "mantissa/setup/data/shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "mantissa/core/base/error.h"
#include "mantissa/core/disk/atomic.h"
#include "mantissa/core/disk/file.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/core/disk/output.h"
#include "mantissa/core/disk/owned.h"
#include "mantissa/setup/data/generated.h"
#include "mantissa/setup/data/tokenizer.h"
#include "mantissa/text/rows/file_kinds.h"
#include "mantissa/text/rows/pieces.h"
#include "mantissa/text/rows/readers.h"
#include "mantissa/text/rows/shard_header.h"
#include "mantissa/text/rows/sources.h"
#include "mantissa/text/tokenizer/fingerprint.h"
#include "mantissa/text/tokenizer/tokenizer.h"

namespace mantissa::data {
namespace {

namespace fs = std::filesystem;
using text::ShardHeader;

/// A text, or a part of one.
struct Piece {
  std::string text;
  bool ends_document = true;
};

/// The texts of files, one after the other.
class PieceStream {
 public:
  PieceStream(const ShardOptions& options, const tokenizer::Tokenizer& tokenizer)
      : tokenizer_(tokenizer),
        files_(text::expand_files(options.files)),
        fields_(text::read_field_map("--fields", options.fields, "pretrain")) {
    check_has_fields(files_, text::FileFormat(options.format, text::IdType::automatic, fields_), "--fields");
    for (const std::string& file : files_) {
      formats_.push_back(text::format_of(file, options.format));
      if (formats_.back() == "tokens" || formats_.back() == "binidx") {
        throw ConfigError(
            fmt::format("data shard: \"{}\" already holds token ids; give files of text, JSON or CSV", file));
      }
      bytes_.push_back(disk::File::open_to_read(file).size());
    }
  }

  bool next(Piece& piece) {
    for (; at_ < files_.size(); ++at_) {
      if (!rows_ && !pieces_) open();
      if (rows_) {
        text::RowDocument document;
        if (rows_->next(document)) {
          piece = {std::move(document.text), true};
          return true;
        }
      } else if (ahead_) {
        piece.text = std::move(*ahead_);
        read_ahead();
        piece.ends_document = !ahead_;
        return true;
      }
      done_ += bytes_[at_];
      rows_.reset();
      pieces_.reset();
    }
    return false;
  }

  std::string file() const { return at_ < files_.size() ? files_[at_] : ""; }
  /// Returns the share of the bytes that are read.
  double share() const {
    double all = 0;
    for (const std::uintmax_t bytes : bytes_) all += static_cast<double>(bytes);
    const std::uintmax_t current = rows_     ? rows_->input().consumed()
                                   : pieces_ ? pieces_->input().consumed()
                                             : 0;
    return all > 0 ? static_cast<double>(done_ + current) / all : 1;
  }

 private:
  void open() {
    if (text::find_file_kind(formats_[at_])->rows) {
      rows_.emplace(files_[at_], text::FileFormat(formats_[at_], text::IdType::automatic, fields_));
    } else {
      pieces_.emplace(files_[at_], tokenizer_);
      read_ahead();
    }
  }
  void read_ahead() {
    ahead_.emplace();
    if (!pieces_->next(*ahead_)) ahead_.reset();
  }

  const tokenizer::Tokenizer& tokenizer_;
  std::vector<std::string> files_, formats_;
  text::FieldMap fields_;
  std::vector<std::uintmax_t> bytes_;
  std::size_t at_ = 0;
  std::uintmax_t done_ = 0;  // bytes of the complete files
  std::optional<text::RowDocuments> rows_;
  std::optional<text::TextPieces> pieces_;
  std::optional<std::string> ahead_;  // the next piece: only the last one ends the document
};

/// Writes the shards into a directory.
class Shards {
 public:
  Shards(fs::path directory, text::ShardOrigin origin, std::int64_t most)
      : directory_(std::move(directory)),
        origin_(std::move(origin)),
        most_(most),
        width_(origin_.vocabulary < 65536 ? 2 : 4) {}

  void append(std::span<const std::int32_t> ids) {
    constexpr std::size_t kBuffer = std::size_t{1} << 20;
    for (const std::int32_t id : ids) {
      if (!file_) begin();
      for (std::size_t b = 0; b < width_; ++b)
        buffer_.push_back(static_cast<std::byte>(static_cast<std::uint32_t>(id) >> (8 * b)));
      if (buffer_.size() >= kBuffer) flush();
      if (++count_ == most_) end();
    }
  }

  /// Completes the last shard. Returns the number of ids in each.
  const std::vector<std::int64_t>& finish() {
    if (file_) end();
    return counts_;
  }
  static std::string name_of(std::size_t shard) { return fmt::format("shard-{:05}.bin", shard); }

 private:
  void begin() {
    file_.emplace(directory_ / name_of(counts_.size()));
    buffer_.assign(ShardHeader::kBytes, std::byte{0});
    count_ = 0;
  }
  void flush() {
    file_->write(buffer_);
    buffer_.clear();
  }
  void end() {
    flush();
    const std::array<std::byte, ShardHeader::kBytes> header = shard_header(width_ == 2, count_, origin_);
    file_->write_at(0, header);
    file_->commit();
    file_.reset();
    counts_.push_back(count_);
  }

  fs::path directory_;
  text::ShardOrigin origin_;
  std::int64_t most_;
  std::size_t width_;
  std::optional<disk::AtomicFile> file_;
  std::vector<std::byte> buffer_;
  std::int64_t count_ = 0;
  std::vector<std::int64_t> counts_;
};

void check_out(const ShardOptions& o) {
  if (o.out.empty()) throw ConfigError("data shard: requires --out DIR, the directory for the shards");
  if (o.shard_tokens < 1 || o.shard_tokens > std::numeric_limits<std::int32_t>::max())
    throw ConfigError(fmt::format("--shard-tokens {}: must be between 1 and 2147483647", o.shard_tokens));
  std::vector<fs::path> inputs;
  for (const std::string& file : text::expand_files(o.files)) inputs.emplace_back(file);
  if (disk::guess_kind(o.tokenizer) != disk::Kind::absent) inputs.emplace_back(o.tokenizer);
  disk::check_output({o.out, disk::Shape::directory, o.overwrite}, inputs);
  disk::check_replaceable(disk::followed(o.out), disk::kShards);
}

std::string description(const ShardOptions& o, const tokenizer::Tokenizer& tokenizer,
                        const ShardReport& report, const std::vector<std::int64_t>& counts) {
  nlohmann::ordered_json shards = nlohmann::ordered_json::array();
  for (std::size_t s = 0; s < counts.size(); ++s)
    shards.push_back({{"file", Shards::name_of(s)}, {"tokens", counts[s]}});
  const nlohmann::ordered_json all = {
      {"sources", o.files},
      {"tokenizer", o.tokenizer},
      {"vocabulary", tokenizer.vocabulary()},
      {"separator", tokenizer.separator()},
      {"documents", report.documents},
      {"tokens", report.tokens},
      {"shards", shards},
  };
  return all.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace

ShardReport write_shards(const ShardOptions& o, const std::function<void(const ShardProgress&)>& on_progress,
                         const std::stop_token& stop) {
  constexpr std::size_t kBatchBytes = std::size_t{4} << 20, kBatchTexts = 4096;
  check_out(o);
  const std::unique_ptr<tokenizer::Tokenizer> tokenizer = make_tokenizer(o.tokenizer);
  const std::int32_t separator = tokenizer->separator();
  PieceStream stream(o, *tokenizer);
  disk::AtomicDirectory directory(disk::given(o.out, o.overwrite), disk::kShards);
  Shards shards(directory.beside(),
                {o.tokenizer, tokenizer::fingerprint(*tokenizer), tokenizer->vocabulary(), separator},
                o.shard_tokens);
  ShardReport report;
  std::vector<Piece> batch;
  std::vector<std::string_view> texts;
  for (bool more = true; more;) {
    batch.clear();
    texts.clear();
    std::size_t bytes = 0;
    for (Piece piece; bytes < kBatchBytes && batch.size() < kBatchTexts && (more = stream.next(piece));) {
      bytes += piece.text.size();
      batch.push_back(std::move(piece));
    }
    for (const Piece& piece : batch) texts.push_back(piece.text);
    const std::vector<std::vector<std::int32_t>> ids = tokenizer::encode_batch(*tokenizer, texts, o.threads);
    for (std::size_t i = 0; i < batch.size(); ++i) {
      shards.append(ids[i]);
      report.tokens += std::ssize(ids[i]);
      if (!batch[i].ends_document) continue;
      shards.append({&separator, 1});
      ++report.tokens;
      ++report.documents;
    }
    if (stop.stop_requested()) {
      report.interrupted = true;
      return report;
    }
    if (on_progress) on_progress({report.tokens, report.documents, stream.share(), stream.file()});
  }
  const std::vector<std::int64_t>& counts = shards.finish();
  if (counts.empty()) {
    throw FileError(fmt::format("data: \"{}\"{} contains no text", o.files.front(),
                                o.files.size() > 1 ? " and the files after it" : ""));
  }
  report.shards = std::ssize(counts);
  disk::write_file_atomic(directory.beside() / "shards.json", description(o, *tokenizer, report, counts));
  directory.commit();
  return report;
}

}  // namespace mantissa::data
