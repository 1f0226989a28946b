// Shards of text, windows for perplexity, and the description of data.
#include "mantissa/data/shard.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"
#include "mantissa/data/inspect.h"
#include "mantissa/data/rows.h"
#include "mantissa/text/corpus.h"
#include "mantissa/text/sources.h"
#include "text/temp_files.h"

namespace mantissa::data {
namespace {

namespace fs = std::filesystem;
using text::error_of;
using Ids = std::vector<std::int32_t>;

Ids ids_of(const std::vector<std::string>& files) {
  return text::read_tokens(files, "auto", *tokenizer::make_tokenizer("byte"), 256);
}

class Shards : public ::testing::Test {
 protected:
  Shards() {
    rows = files.write("a.jsonl", "{\"text\": \"one\"}\n{\"text\": \"\"}\n{\"text\": \"three\"}\n");
    for (int i = 0; i < 60'000; ++i) lines += "line " + std::to_string(i) + "\n";
    text = files.write("b.txt", lines);
  }
  ShardOptions options(std::int64_t tokens = 1'000'000) const {
    ShardOptions o;
    o.files = {rows, text};
    o.tokenizer = "byte";
    o.out = files.path("out");
    o.shard_tokens = tokens;
    return o;
  }
  std::string glob() const { return files.path("out/shard-*.bin"); }

  text::TempFiles files;
  std::string lines, rows, text;
};

TEST_F(Shards, HoldTheIdsOfTheFilesInOrder) {
  const ShardReport report = write_shards(options(100'000));
  Ids want = ids_of({rows, text});
  want.push_back(0);  // every document ends with the separator, also a text
  EXPECT_EQ(ids_of({glob()}), want);
  EXPECT_EQ(report.tokens, std::ssize(want));
  EXPECT_EQ(report.documents, 4);
  EXPECT_EQ(report.shards, (report.tokens + 99'999) / 100'000);
  EXPECT_GT(report.shards, 3);
}

TEST_F(Shards, AreDividedIntoTheirDocumentsAgain) {
  write_shards(options());
  const auto tokenizer = tokenizer::make_tokenizer("byte");
  text::Corpus corpus = text::read_corpus({glob()}, "auto", *tokenizer, 256);
  corpus.split_token_files(std::nullopt);
  EXPECT_EQ(corpus.document_lengths(), (std::vector<std::int64_t>{4, 1, 6, std::ssize(lines) + 1}));
}

TEST_F(Shards, AreTheSameForAnyNumberOfThreads) {
  ShardOptions o = options(50'000);
  o.threads = 1;
  write_shards(o);
  const Ids one = ids_of({glob()});
  o.threads = 3;
  o.overwrite = true;
  write_shards(o);
  EXPECT_EQ(ids_of({glob()}), one);
}

TEST_F(Shards, AreDescribedBesideThem) {
  const ShardReport report = write_shards(options(100'000));
  std::ifstream in(files.path("out/shards.json"));
  const nlohmann::json json = nlohmann::json::parse(in);
  EXPECT_EQ(json["tokens"], report.tokens);
  EXPECT_EQ(json["documents"], 4);
  EXPECT_EQ(json["separator"], 0);
  EXPECT_EQ(std::ssize(json["shards"]), report.shards);
  EXPECT_EQ(json["shards"][0]["tokens"], 100'000);
}

TEST_F(Shards, AppearCompleteOrNotAtAll) {
  const std::string bad = files.write("bad.jsonl", "{\"text\": \"a\"}\n{\n");
  ShardOptions o = options();
  o.files.push_back(bad);
  EXPECT_TRUE(text::has(error_of<FileError>([&] { write_shards(o); }), "bad.jsonl:2: not JSON"));
  EXPECT_FALSE(fs::exists(o.out));
  std::stop_source stop;
  const auto stopped = write_shards(
      options(), [&](const ShardProgress&) { stop.request_stop(); }, stop.get_token());
  EXPECT_FALSE(stopped.interrupted) << "stopped after the last batch";
  stop.request_stop();
  o = options();
  o.overwrite = true;
  EXPECT_TRUE(write_shards(o, {}, stop.get_token()).interrupted);
  EXPECT_EQ(std::ssize(ids_of({glob()})), stopped.tokens) << "the old shards remain";
  EXPECT_FALSE(fs::exists(files.path("out.partial")));
}

TEST_F(Shards, ReplaceOnlyShardsAndOnlyOnRequest) {
  write_shards(options());
  EXPECT_TRUE(text::has(error_of<FileError>([&] { write_shards(options()); }), "add --overwrite"));
  ShardOptions o = options();
  o.out = files.path("");
  o.overwrite = true;
  EXPECT_TRUE(text::has(error_of<FileError>([&] { write_shards(o); }), "has no shards.json"));
  o = options();
  o.out = files.path("again");
  o.files = {files.path("out/shard-00000.bin")};
  EXPECT_TRUE(text::has(error_of<ConfigError>([&] { write_shards(o); }), "already holds token ids"));
}

TEST_F(Shards, ReportTheirProgress) {
  std::vector<double> shares;
  write_shards(options(), [&](const ShardProgress& p) { shares.push_back(p.share); });
  ASSERT_FALSE(shares.empty());
  EXPECT_TRUE(std::ranges::is_sorted(shares));
  EXPECT_EQ(shares.back(), 1);
}

// ---- Windows ----

/// The targets of each window by their place in the stream, which counts from 0.
std::vector<Ids> targets_of(std::int64_t size, std::int64_t window, std::int64_t stride) {
  Ids ids(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i);
  const text::StepData rows = windows_of(ids, window, stride, "data");
  std::vector<Ids> all;
  for (std::int64_t r = 0; r < rows.rows; ++r) {
    Ids& targets = all.emplace_back();
    for (std::int64_t t = 0; t < rows.length(r); ++t) {
      if (rows.target(r, t) < 0) continue;
      EXPECT_EQ(rows.target(r, t), rows.ids_of(r)[static_cast<std::size_t>(t)] + 1);
      targets.push_back(rows.target(r, t));
    }
    EXPECT_EQ(rows.ids_of(r)[0], r * stride);
  }
  return all;
}

TEST(Windows, PredictEachTokenOnce) {
  EXPECT_EQ(targets_of(10, 4, 2), (std::vector<Ids>{{1, 2, 3}, {4, 5}, {6, 7}, {8, 9}}));
  EXPECT_EQ(targets_of(9, 4, 2), (std::vector<Ids>{{1, 2, 3}, {4, 5}, {6, 7}, {8}}));
  EXPECT_EQ(targets_of(5, 8, 3), (std::vector<Ids>{{1, 2, 3, 4}}));
  EXPECT_EQ(targets_of(6, 3, 1), (std::vector<Ids>{{1, 2}, {3}, {4}, {5}}));
}

TEST(Windows, ThatDoNotOverlapLeaveOutTheirFirstTokens) {
  EXPECT_EQ(targets_of(9, 3, 3), (std::vector<Ids>{{1, 2}, {4, 5}, {7, 8}}));
}

TEST(Windows, OutOfRangeAreRefused) {
  const Ids ids(10, 1);
  for (const auto& [window, stride] : {std::pair{1, 1}, {4, 0}, {4, 5}})
    EXPECT_THROW(windows_of(ids, window, stride, "data"), ConfigError);
  EXPECT_THROW(windows_of(std::span(ids).first(1), 4, 2, "data"), ConfigError);
}

// ---- Descriptions ----

TEST(DataDescription, HasQuantilesOfTheDocuments) {
  text::TempFiles files;
  std::string rows;
  for (int i = 1; i <= 10; ++i)
    rows += "{\"text\": \"" + std::string(static_cast<std::size_t>(i), 'a') + "\"}\n";
  InspectFiles o;
  o.files = {files.write("a.jsonl", rows)};
  o.sequence_length = 16;
  const DataDescription d = describe_files(o);
  EXPECT_EQ(d.documents, 10);
  EXPECT_EQ(d.tokens, 65);  // 55 letters and a separator for each
  EXPECT_EQ(d.lengths.min, 2);
  EXPECT_EQ(d.lengths.median, 6);
  EXPECT_EQ(d.lengths.p90, 10);
  EXPECT_EQ(d.lengths.max, 11);
  EXPECT_EQ(d.lengths.mean, 6.5);
  EXPECT_EQ(d.rows, 4);
  EXPECT_EQ(d.entries, 2);
  EXPECT_EQ(d.masked, 0);
  o.packing = true;
  const DataDescription packed = describe_files(o);
  EXPECT_EQ(packed.rows, 5);  // {2,3,4,5}, {6,7}, {8,9}, {10}, {11}
  EXPECT_GT(packed.masked, 0);
}

}  // namespace
}  // namespace mantissa::data
