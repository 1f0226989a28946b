// Shards of text, windows for perplexity, and the description of data.
#include "mantissa/setup/data/shard.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "mantissa/core/base/error.h"
#include "mantissa/setup/config/run_config.h"
#include "mantissa/setup/data/file_rows.h"
#include "mantissa/setup/data/inspect.h"
#include "mantissa/text/rows/corpus.h"
#include "mantissa/text/rows/shard_header.h"
#include "mantissa/text/rows/sources.h"
#include "text/rows/temp_files.h"

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
  EXPECT_TRUE(
      text::has(error_of<FileError>([&] { write_shards(options()); }), "replace it with --overwrite"));
  ShardOptions o = options();
  o.out = files.path("");
  o.overwrite = true;
  EXPECT_TRUE(text::has(error_of<FileError>([&] { write_shards(o); }), ": contains the input "));
  fs::create_directory(files.path("theirs"));
  files.write("theirs/notes.txt", "a user's");
  o.out = files.path("theirs");
  EXPECT_TRUE(
      text::has(error_of<FileError>([&] { write_shards(o); }), "is not replaced: it has no .mantissa.json"));
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

// ---- Another tokenizer ----

constexpr const char* kWords = MANTISSA_SOURCE_DIR "/examples/demo-tokenizer.json";  // 406 entries

/// Loads the data of a run that trains on `source`.
text::Dataset load(const std::string& source, const std::string& data, std::int64_t vocabulary = 406) {
  const config::RunConfig run = config::parse_config(
      "[run]\nsteps = 1\n[model]\nhidden_size = 16\nintermediate_size = 16\nnum_hidden_layers = 1\n"
      "num_attention_heads = 1\nvocab_size = " +
          std::to_string(vocabulary) + "\n[data]\nsource = \"" + source + "\"\n" + data,
      "/run.toml");
  return load_dataset(run, model::parse_model_config(run.model.fields, "[model]"));
}

TEST_F(Shards, OfAnotherTokenizerAreRefusedWithBothNames) {
  write_shards(options());
  const std::string words = "tokenizer = \"" + std::string(kWords) + "\"\n";
  EXPECT_GT(load(glob(), "").training_rows(), 0);
  const std::string message = error_of<ConfigError>([&] { load(glob(), words); });
  for (const std::string& part :
       {files.path("out/shard-00000.bin"), std::string("expected ids of data.tokenizer = \"") + kWords,
        std::string("(406 entries), got ids of \"byte\" (256 entries). Fix: set data.tokenizer")})
    EXPECT_TRUE(text::has(message, part)) << message;
  // Held-out files, and the other way round.
  EXPECT_TRUE(text::has(
      error_of<ConfigError>([&] { load(text, "validation = \"" + glob() + "\"\n" + words); }), "got ids of"));
  ShardOptions o = options();
  o.tokenizer = kWords;
  o.overwrite = true;
  write_shards(o);
  EXPECT_GT(load(glob(), words).training_rows(), 0);
  EXPECT_TRUE(text::has(error_of<ConfigError>([&] { load(glob(), ""); }),
                        "expected ids of data.tokenizer = \"byte\" (256 entries), got ids of \"" +
                            std::string(kWords) + "\" (406 entries)"));
}

TEST_F(Shards, OfTheSameVocabularyInAnotherFileAreAccepted) {
  ShardOptions o = options();
  o.tokenizer = kWords;
  write_shards(o);
  std::ifstream in(kWords);
  const nlohmann::json same = nlohmann::json::parse(in);
  const std::string file = files.write("same.json", same.dump());
  EXPECT_GT(load(glob(), "tokenizer = \"" + file + "\"\n").training_rows(), 0);
}

TEST_F(Shards, OfAnotherTokenizerOfTheSameNameDifferInItsContents) {
  std::ifstream in(kWords);
  nlohmann::json words = nlohmann::json::parse(in);
  ShardOptions o = options();
  o.tokenizer = files.write("own.json", words.dump());
  write_shards(o);
  std::swap(words["model"]["vocab"]["!"], words["model"]["vocab"]["#"]);
  files.write("own.json", words.dump());
  const std::string message =
      error_of<ConfigError>([&] { load(glob(), "tokenizer = \"" + o.tokenizer + "\"\n"); });
  for (const char* part :
       {"(406 entries); the names are equal, but the contents of the tokenizers differ. Fix: restore the ",
        "`mantissa data shard FILES --tokenizer ", " --out DIR`"})
    EXPECT_TRUE(text::has(message, part)) << message;
  // A description needs no tokenizer, and says why it shows no text.
  InspectFiles inspect;
  inspect.files = {glob()};
  const DataDescription d = describe_files(inspect);
  EXPECT_EQ(d.vocabulary, 406);
  ASSERT_EQ(d.notes.size(), 1U);
  EXPECT_TRUE(text::has(d.notes[0], "(406 entries), whose files have changed since: rows are shown as ids"))
      << d.notes[0];
  fs::remove(o.tokenizer);
  EXPECT_TRUE(text::has(describe_files(inspect).notes.at(0), "which cannot be read: "));
}

TEST_F(Shards, OfTwoTokenizersAreNotOneStream) {
  write_shards(options());
  ShardOptions o = options();
  o.tokenizer = kWords;
  o.out = files.path("words");
  write_shards(o);
  InspectFiles inspect;
  inspect.files = {glob(), files.path("words/*.bin")};
  const std::string message = error_of<ConfigError>([&] { describe_files(inspect); });
  EXPECT_TRUE(text::has(message, "words/shard-00000.bin\": expected ids of \"byte\" (256 entries), as in \""))
      << message;
  EXPECT_TRUE(text::has(message, "(406 entries). Fix: give the shards of one tokenizer")) << message;
}

TEST_F(Shards, AreAllFilesOfTheirDirectoryButTheirDescription) {
  write_shards(options());
  EXPECT_EQ(ids_of({files.path("out/*")}), ids_of({glob()}));
  EXPECT_EQ(text::expand_files({files.path("out/*.json")}).size(), 1U) << "named by the glob alone";
}

TEST_F(Shards, OfEarlierVersionsAreDistinguishedByTheirVocabulary) {
  write_shards(options());
  const std::string path = files.path("out/shard-00000.bin");
  std::fstream shard(path, std::ios::in | std::ios::out | std::ios::binary);
  shard.seekp(4 * text::ShardHeader::kFingerprint);
  const std::string zeros(text::ShardHeader::kBytes - 4 * text::ShardHeader::kFingerprint, '\0');
  shard.write(zeros.data(), std::ssize(zeros));
  shard.close();
  EXPECT_GT(load(glob(), "").training_rows(), 0);
  EXPECT_TRUE(
      text::has(error_of<ConfigError>([&] { load(glob(), "tokenizer = \"" + std::string(kWords) + "\"\n"); }),
                "got ids of another tokenizer (256 entries)"));
}

TEST(RawIds, HaveTheTypeOfTheConfig) {
  text::TempFiles files;
  std::string bytes;
  for (int i = 0; i < 600; ++i) bytes += {static_cast<char>(0xff), static_cast<char>(i % 2 == 0 ? 0xff : 0)};
  const std::string ids = files.write("ids.bin", bytes);  // 65535, 255, …
  EXPECT_EQ(load(ids, "sequence_length = 16\nvalidation = 0\nid_type = \"uint16\"\n", 65536).training_rows(),
            599 / 16);
  EXPECT_TRUE(text::has(error_of<FileError>([&] { load(ids, "sequence_length = 16\n", 65536); }),
                        "which data.id_type sets"));
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
    const RowTokens row = rows.row(r);
    for (std::size_t t = 0; t < row.ids.size(); ++t) {
      if (row.targets[t] < 0) continue;
      EXPECT_EQ(row.targets[t], row.ids[t] + 1);
      targets.push_back(row.targets[t]);
    }
    EXPECT_EQ(row.ids[0], r * stride);
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

TEST(DataDescription, HasTheShareAndTheRepeatsOfEachSource) {
  text::TempFiles files;
  const std::string a = files.write("a.txt", std::string(1001, 'a')),
                    b = files.write("b.txt", std::string(201, 'b'));
  const config::RunConfig run = config::parse_config(
      "[run]\nsteps = 20\n[model]\nhidden_size = 16\nintermediate_size = 16\nnum_hidden_layers = 1\n"
      "num_attention_heads = 1\nvocab_size = 256\n[batch]\nglobal_batch_size = 4\n[data]\nvalidation = 0\n"
      "sequence_length = 10\nweights = [1, 3]\nsource = [\"" +
          a + "\", \"" + b + "\"]\n",
      "/run.toml");
  const DataDescription d = describe_run(run, model::parse_model_config(run.model.fields, "[model]"), 2);
  ASSERT_EQ(d.sources.size(), 2U);
  EXPECT_EQ(d.sources[0].counts.name, a);
  EXPECT_EQ(d.sources[0].counts.share, 0.25);
  EXPECT_EQ(d.sources[0].counts.rows, 100);
  EXPECT_EQ(d.sources[0].counts.tokens, 1001);
  EXPECT_EQ(d.sources[0].repeats, 0.2);  // 20 of 80 rows
  EXPECT_EQ(d.sources[1].counts.rows, 20);
  EXPECT_EQ(d.sources[1].repeats, 3);
  // Text and ids of the same rows.
  ASSERT_EQ(d.samples.size(), 2U);
  EXPECT_EQ(d.samples[0], std::string(11, 'a'));
  EXPECT_EQ(d.sample_ids[0], Ids(11, 'a'));
}

TEST(DataDescription, ShowsTheTextOfIdsWhoseTokenizerIsKnown) {
  text::TempFiles files;
  ShardOptions shards;
  shards.files = {files.write("a.txt", "Ben said Kim is a knave. Kim said Ben is a knight.")};
  shards.tokenizer = kWords;
  shards.out = files.path("s");
  write_shards(shards);
  InspectFiles o;
  o.files = {files.path("s/*.bin")};
  const DataDescription d = describe_files(o);
  EXPECT_EQ(d.vocabulary, 406);
  ASSERT_EQ(d.samples.size(), 1U);
  EXPECT_TRUE(d.samples[0].starts_with("Ben said Kim is a knave.")) << d.samples[0];
  o.tokenizer = "byte";
  EXPECT_TRUE(
      text::has(error_of<ConfigError>([&] { describe_files(o); }), "expected ids of --tokenizer = \"byte\""));
}

}  // namespace
}  // namespace mantissa::data
