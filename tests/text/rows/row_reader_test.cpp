// The rows of JSON lines, JSON arrays and CSV are the same rows.
#include "mantissa/text/rows/row_reader.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "mantissa/core/base/error.h"
#include "text/rows/temp_files.h"

namespace mantissa::text {
namespace {

using Json = nlohmann::ordered_json;
using namespace std::string_literals;

class RowFiles : public ::testing::Test {
 protected:
  std::vector<Json> read(const std::string& name, const std::string& content,
                         const FileFormat& format = {}) const {
    std::vector<Json> rows;
    read_rows(
        files_.write(name, content),
        [&](Json row, const FilePlace& /*place*/) {
          rows.push_back(std::move(row));
          return true;
        },
        format);
    return rows;
  }
  std::string refusal(const std::string& name, const std::string& content) const {
    const std::string text = error_of<FileError>([&] { read(name, content); });
    return text.substr(std::min(text.size(), text.find(name)));
  }
  /// The message of rows that `write` puts into a sparse file of zero bytes.
  std::string refusal_of_endless(const std::string& name, const std::string& begin) const {
    const std::string path = files_.write(name, begin);
    std::filesystem::resize_file(path, std::uintmax_t{1} << 40);
    return error_of<FileError>([&] { read_rows(path, [](const Json&, const FilePlace&) { return true; }); });
  }

  TempFiles files_;
};

const std::vector<Json> kTwo = {{{"a", "1"}, {"b", "x\ny"}}, {{"a", ""}, {"b", "\"é\", [{"}}};

TEST_F(RowFiles, OfEveryKindAreTheSame) {
  const std::string one = kTwo[0].dump(), two = kTwo[1].dump();
  EXPECT_EQ(read("r.jsonl", one + "\n\n" + two), kTwo);
  EXPECT_EQ(read("r.json", "[" + one + "," + two + "]"), kTwo);
  EXPECT_EQ(read("r.json", one + "\n" + two + "\n"), kTwo) << "a .json file may have lines";
  EXPECT_EQ(read("r.jsonl", " \n\t[\r\n" + kTwo[0].dump(2) + " ,\n" + kTwo[1].dump(2) + "\n]\n\n"), kTwo)
      << "a .jsonl file may have an array";
  const std::string csv = "a,b\n1,\"x\ny\"\n,\"\"\"é\"\", [{\"\n";
  EXPECT_EQ(read("r.csv", csv), kTwo);
  EXPECT_EQ(read("r.data", csv, "csv"), kTwo) << "the format says what the name does not";
  EXPECT_TRUE(read("r.json", " [ ] ").empty());
  EXPECT_TRUE(read("r.csv", "").empty());
  EXPECT_TRUE(read("r.csv", "a,b\n").empty());
}

TEST_F(RowFiles, MayFollowAByteOrderMarkAndBeCompressed) {
  for (const auto& [name, text] :
       {std::pair("r.json"s, "[" + kTwo[0].dump() + "]"), std::pair("r.csv"s, "a,b\r\n1,\"x\ny\"\r\n"s)}) {
    EXPECT_EQ(read(name, "\xef\xbb\xbf" + text), std::vector{kTwo[0]}) << name;
    const gzFile file = gzopen(files_.path(name + ".gz").c_str(), "wb");
    gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
    gzclose(file);
    RowReader rows(files_.path(name + ".gz"));
    Json row;
    ASSERT_TRUE(rows.next(row)) << name;
    EXPECT_EQ(row, kTwo[0]) << name;
    EXPECT_FALSE(rows.next(row)) << name;
  }
}

TEST_F(RowFiles, AreNamedByLineAndByNumberUnlessTheyAreLines) {
  const auto places = [&](const std::string& name, const std::string& content) {
    RowReader rows(files_.write(name, content));
    std::vector<std::string> all;
    for (Json row; rows.next(row);) all.push_back(rows.where().substr(rows.where().rfind('/') + 1));
    return all;
  };
  using Places = std::vector<std::string>;
  EXPECT_EQ(places("r.jsonl", "{}\n\n{}"), (Places{"r.jsonl:1", "r.jsonl:3"}));
  EXPECT_EQ(places("r.json", "[{},{},\n\n{}]"),
            (Places{"r.json:1 (row 1)", "r.json:1 (row 2)", "r.json:3 (row 3)"}));
  EXPECT_EQ(places("r.csv", "a\n\"x\r\ny\"\r\n\r\nz"), (Places{"r.csv:2 (row 1)", "r.csv:5 (row 2)"}));
}

TEST_F(RowFiles, OfAnArrayMayCrossTheReadersChunks) {
  std::string array = "[";
  for (int i = 0; i < 5; ++i)
    array += fmt::format("{}{{\"text\": \"{}\\\"]}}{}\"}}", i > 0 ? "," : "", std::string(700'001, 'x'), i);
  const std::vector<Json> rows = read("r.json", array + "]");
  ASSERT_EQ(rows.size(), 5U);
  for (int i = 0; i < 5; ++i)
    EXPECT_TRUE(rows[static_cast<std::size_t>(i)]["text"] ==
                std::string(700'001, 'x') + "\"]}" + std::to_string(i));
}

TEST_F(RowFiles, OfABrokenArrayAreRefusedWithTheRow) {
  EXPECT_EQ(refusal("r.json", "["),
            "r.json:1 (row 1): the file ends before the \"]\" of its array. Fix: check "
            "that the file is complete");
  EXPECT_TRUE(has(refusal("r.json", "[{}"), "r.json:1 (row 1): the file ends before the \"]\""));
  EXPECT_TRUE(has(refusal("r.json", "[{},\n"), "r.json:2 (row 2): the file ends before the \"]\""));
  EXPECT_TRUE(has(refusal("r.json", "[{},\n{\"a\": \"]"), "r.json:2 (row 2): the file ends within this row"));
  EXPECT_TRUE(has(refusal("r.json", "[{}\n{}]"),
                  "r.json:2 (row 1): expected a comma or \"]\" after the row, got \"{\""));
  EXPECT_TRUE(has(refusal("r.json", "[{},]"), "(row 2): expected an object, got \"]\""));
  EXPECT_TRUE(has(refusal("r.json", "[[]]"), "(row 1): expected an object, got \"[\""));
  EXPECT_TRUE(has(refusal("r.json", "[{}, \"a\"]"), "(row 2): expected an object"));
  EXPECT_TRUE(has(refusal("r.jsonl", "[{}]\n[{}]"), "r.jsonl:2 (row 1): \"[\" follows the end of the array"));
  EXPECT_TRUE(
      has(refusal("r.json", "[{},{\"a\" 1}]"), "(row 2): not JSON at byte 6 of the row; every element"));
  EXPECT_TRUE(has(refusal("r.json", "[{\"a\": \"\xff\"}]"), "(row 1): byte 8 of the row is not UTF-8"));
  EXPECT_TRUE(has(refusal("r.json", "[{\"a\": \0}]"s), "(row 1): not JSON at byte 7 of the row"));
  EXPECT_TRUE(has(refusal("r.json", "[\0"s), "(row 1): expected an object, got the byte 0x00"));
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  EXPECT_TRUE(
      has(refusal("r.json", "[{\"a\": " + deep + "}]"), "(row 1): arrays and objects nest deeper than 256"));
  EXPECT_TRUE(has(refusal("r.json", std::string(100'000, '[')), "(row 1): expected an object"));
  EXPECT_TRUE(has(refusal_of_endless("r.json", "[{}, {\"a\": \""),
                  "r.json:1 (row 2): the row has more than 256 MiB"));
}

TEST_F(RowFiles, OfCsvHaveTheValuesOfRfc4180) {
  const auto only = [&](const std::string& values) { return read("r.csv", "a,b\n" + values)[0]["a"]; };
  EXPECT_EQ(only("x y ,"), "x y ");
  EXPECT_EQ(only("\"x,\"\"y\"\"\r\n\",z"), "x,\"y\"\r\n");
  EXPECT_EQ(only("\"\",z"), "");
  EXPECT_EQ(only("5\" pipe,z"), "5\" pipe") << "as in Python's csv";
  EXPECT_EQ(read("r.csv", "a,b\r1,2\r\n\n3,4\n").size(), 2U) << "any line end";
  EXPECT_EQ(read("r.csv", ",text\n0,a\n"), (std::vector<Json>{{{"text", "a"}}})) << "the index of pandas";
}

TEST_F(RowFiles, OfBrokenCsvAreRefusedWithTheRow) {
  EXPECT_EQ(
      refusal("r.csv", "a,b\n1,2\n3\n"),
      "r.csv:3 (row 2): 1 value, but the header has 2 (a, b). Fix: put a value with a comma or a line end in "
      "quotes");
  EXPECT_TRUE(has(refusal("r.csv", "a,b\n1,2,3\n"), "r.csv:2 (row 1): more than 2 values. Fix: "));
  EXPECT_TRUE(has(refusal("r.csv", "a,b\n1,2\nx,\"y\nz\n"),
                  "r.csv:3 (row 2): the quote that begins a value on line 3 does not end"));
  EXPECT_TRUE(has(refusal("r.csv", "a,b\n\"x\"y,2\n"), "r.csv:2 (row 1): text follows the quote"));
  EXPECT_TRUE(has(refusal("r.csv", "a,b\nx,\0\n"s), "r.csv:2 (row 1): the row has a zero byte"));
  EXPECT_TRUE(has(refusal("r.csv", "a,b\nx,\xe9\n"), "r.csv:2 (row 1): value 2 is not UTF-8"));
  EXPECT_TRUE(has(refusal("r.csv", "a,b,a\n"), "r.csv:1: the header has the name \"a\" twice"));
  EXPECT_TRUE(
      has(refusal("r.csv", "prompt;completion\n"), "r.csv:1: the header \"prompt;completion\" has no comma"));
  EXPECT_TRUE(has(refusal("r.csv", std::string(5000, ',')), "r.csv:1: more than 4096 values"));
  EXPECT_TRUE(has(refusal("r.csv", "a\n" + std::string((std::size_t{1} << 28) + 1, 'x')),
                  "r.csv:2 (row 1): the row has more than 256 MiB"));
}

}  // namespace
}  // namespace mantissa::text
