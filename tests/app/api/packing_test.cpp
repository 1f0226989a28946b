// Rows of several documents, and mixed sources: against the documents alone, and when resumed.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <stop_token>

#include "app/api/tiny.h"
#include "mantissa/app/api/error.h"
#include "mantissa/app/api/mantissa.h"

namespace mantissa::api {
namespace {

using testing::into;
using testing::TemporaryFolder;
using testing::tiny_config;

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

Row document(std::int64_t length, std::int32_t seed) {
  Row row;
  for (std::int64_t i = 0; i < length; ++i)
    row.ids.push_back(static_cast<std::int32_t>((i * i + seed * (3 * i + 7)) % 251));
  return row;
}

/// Rows of 33 ids with two documents, and each document as a row.
struct Rows {
  std::vector<Row> packed, alone;
};
Rows rows_of(int count) {
  Rows rows;
  for (int r = 0; r < count; ++r) {
    const std::int64_t first = 9 + 3 * (r % 5);
    Row packed = document(first, 2 * r + 1);
    const Row second = document(33 - first, 2 * r + 2);
    rows.alone.push_back(packed);
    rows.alone.push_back(second);
    packed.ids.insert(packed.ids.end(), second.ids.begin(), second.ids.end());
    packed.documents = {first, 33 - first};
    rows.packed.push_back(packed);
  }
  return rows;
}

std::vector<double> losses_of(const std::filesystem::path& out, std::vector<Row> rows, int batch) {
  std::string config = tiny_config(6, "64-true", batch);
  config = replaced(config, "global_batch_size = 4", "global_batch_size = " + std::to_string(batch));
  config = replaced(config, "validation = 0.05", "validation = 0\nshuffle = false");
  std::vector<double> losses;
  TrainOptions o = into(out);
  o.data.rows = std::move(rows);
  Events events;
  events.on_step = [&](const Step& step) { losses.push_back(step.loss); };
  train(Config::parse(config), o, events);
  return losses;
}

TEST(PackedRows, TrainAsTheirDocumentsDo) {
  const TemporaryFolder folder;
  const Rows rows = rows_of(24);
  const std::vector<double> packed = losses_of(folder / "packed", rows.packed, 4),
                            alone = losses_of(folder / "alone", rows.alone, 8);
  ASSERT_EQ(packed.size(), 6U);
  ASSERT_EQ(alone.size(), 6U);
  // Only the order of sums over tokens differs: about 250 terms of the batch, and errors of earlier updates,
  // which the learning rate of 1e-2 times Adam's division by a small second moment may enlarge by 1e4.
  const double one_step = 256 * std::ldexp(1.0, -53);
  EXPECT_NEAR(packed[0], alone[0], one_step * alone[0]);
  for (std::size_t s = 1; s < 6; ++s) EXPECT_NEAR(packed[s], alone[s], 1e4 * one_step * alone[s]);
}

TEST(PackedRows, OfOtherDocumentsAreRefused) {
  const TemporaryFolder folder;
  std::vector<Row> rows = rows_of(4).packed;
  rows[2].documents = {20, 20};
  try {
    losses_of(folder / "r", rows, 4);
    FAIL() << "accepted";
  } catch (const ConfigError& e) {
    EXPECT_TRUE(testing::has(e.message(), "rows[2]: has a document of 20 ids where 13 are left"))
        << e.message();
  }
}

/// Two files of JSON lines with short documents, and a text.
class PackedFiles : public ::testing::Test {
 protected:
  PackedFiles() {
    for (const char* name : {"a.jsonl", "b.jsonl"}) {
      std::ofstream out(folder / name);
      for (int i = 0; i < 60; ++i)
        out << "{\"text\": \""
            << std::string(static_cast<std::size_t>(3 + i * 7 % 50), static_cast<char>('a' + i % 26)) << name
            << "\"}\n";
    }
    std::ofstream(folder / "c.txt") << std::string(300, 'x');
  }
  std::string config(const std::string& more, int steps = 6, int micro = 2) const {
    const std::string sources = "source = [\"" + (folder / "a.jsonl").string() + "\", \"" +
                                (folder / "b.jsonl").string() + "\", \"" + (folder / "c.txt").string() +
                                "\"]\n" + more;
    return replaced(tiny_config(steps, "32-true", micro), "source = \"kk\"", sources);
  }
  TemporaryFolder folder;
};

TEST_F(PackedFiles, TrainToTheBitsOfADocumentInEachRow) {
  // Two documents fill each row of 33 ids: the texts and their separators.
  std::ofstream out(folder / "pairs.jsonl");
  std::vector<Row> alone;
  for (int d = 0; d < 24; ++d) {
    const int first = 9 + 3 * (d / 2 % 5), length = d % 2 == 0 ? first : 33 - first;
    std::string text;
    for (int i = 0; i + 1 < length; ++i) text += static_cast<char>('a' + (i * i + d * (3 * i + 7)) % 26);
    out << "{\"text\": \"" << text << "\"}\n";
    Row row;
    for (const char c : text + '\0') row.ids.push_back(c);
    alone.push_back(std::move(row));
  }
  out.close();
  for (const char* policy : {"32-true", "bf16-mixed", "bf16-mixed; *: pass=forward rounding=stochastic"}) {
    const auto text = [&](int batch, int micro, const std::string& data) {
      std::string config = tiny_config(6, policy, micro);
      config = replaced(config, "global_batch_size = 4", "global_batch_size = " + std::to_string(batch));
      config = replaced(config, "validation = 0.05", "validation = 0\nshuffle = false");
      return replaced(config, "source = \"kk\"", data);
    };
    const std::string packed = "packing = true\nsource = \"" + (folder / "pairs.jsonl").string() + "\"";
    const auto run = [&](const char* name, const std::string& config, std::vector<Row> rows = {}) {
      TrainOptions o = into(folder / (std::string(name) + std::to_string(std::string(policy).size())));
      o.data.rows = std::move(rows);
      return train(Config::parse(config), o).weights_xxh64;
    };
    const bool keyed = testing::has(policy, "stochastic");  // by the number of the row, which packing changes
    const std::string want = run("packed", text(4, 4, packed));
    EXPECT_EQ(run("micro", text(4, 1, packed)), want) << policy;
    if (keyed) continue;
    EXPECT_EQ(run("alone", text(8, 2, "source = \"kk\""), alone), want) << policy;
  }
}

TEST_F(PackedFiles, MixedByWeightsHaveTheSameBitsInAnyMicroBatchAndWhenResumed) {
  const std::string keys = "packing = true\nweights = [0.5, 0.3, 0.2]";
  const Summary whole = train(Config::parse(config(keys)), into(folder / "whole"));
  const Summary micro = train(Config::parse(config(keys, 6, 4)), into(folder / "micro"));
  EXPECT_EQ(micro.weights_xxh64, whole.weights_xxh64);
  std::stop_source stop;
  Events events;
  events.on_step = [&](const Step& step) {
    if (step.step == 4) stop.request_stop();
  };
  TrainOptions o = into(folder / "parts");
  EXPECT_TRUE(train(Config::parse(config(keys)), o, events, stop.get_token()).interrupted);
  o.resume = 0;
  EXPECT_EQ(train(Config::parse(config(keys)), o).weights_xxh64, whole.weights_xxh64);
  const Summary other =
      train(Config::parse(config("packing = true\nweights = [0.2, 0.3, 0.5]")), into(folder / "other"));
  EXPECT_NE(other.weights_xxh64, whole.weights_xxh64);
}

TEST_F(PackedFiles, AreDescribed) {
  const DataDescription packed = inspect_data(Config::parse(config("packing = true")));
  EXPECT_EQ(packed.documents, 121);
  EXPECT_LT(packed.padding, 0.2);
  EXPECT_GT(packed.masked, 0);  // the ends of documents
  const DataDescription stream = inspect_data(Config::parse(config("packing = false")));
  EXPECT_EQ(stream.documents, 121);
  EXPECT_EQ(stream.tokens, packed.tokens);
  EXPECT_EQ(stream.padding, 0);
  EXPECT_EQ(stream.masked, 0);
  EXPECT_EQ(stream.vocabulary, 256);
  EXPECT_EQ(stream.samples.size(), 3U);
}

TEST_F(PackedFiles, MayBeHeldOut) {
  const std::string held = "packing = true\nvalidation = [\"" + (folder / "b.jsonl").string() + "\"]";
  std::string text = replaced(config(held), "validation = 0.05\n", "");
  const DataDescription d = inspect_data(Config::parse(text));
  const DataDescription b =
      inspect_data({.files = {(folder / "b.jsonl").string()}, .sequence_length = 32, .packing = true});
  EXPECT_EQ(d.held_out_rows, b.rows);
  EXPECT_GT(b.rows, 10);
  EXPECT_TRUE(train(Config::parse(text), into(folder / "r")).validation_loss.has_value());
}

}  // namespace
}  // namespace mantissa::api
