// mantissa data inspect and shard; prompts from files, streamed and stopped texts; windows and multiple
// choice.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <nlohmann/json.hpp>

#include "app/cli/run_program.h"

namespace mantissa::testing {
namespace {

using nlohmann::json;

class DataCommands : public ::testing::Test {
 protected:
  json json_of(const std::string& arguments) const {
    const Result r = mantissa(folder, arguments + " --json");
    EXPECT_EQ(r.code, 0) << r.err;
    return r.code == 0 ? json::parse(r.out) : json::object();
  }
  void expect_refused(const std::string& arguments, const std::string& message) const {
    const Result r = mantissa(folder, arguments);
    EXPECT_EQ(r.code, 2) << arguments;
    EXPECT_EQ(r.out, "") << arguments;
    EXPECT_TRUE(has(r.err, message)) << arguments << "\n" << r.err;
  }
  TemporaryFolder folder;
};

TEST_F(DataCommands, CountTokensAndMaskedOnesAsTrainDoes) {
  std::string rows;
  for (int i = 1; i <= 8; ++i)
    rows +=
        "{\"prompt\": \"" + std::string(static_cast<std::size_t>(i), 'a') + "\", \"completion\": \"bcd\"}\n";
  write(folder / "rows.jsonl", rows);
  write(folder / "run.toml", tiny_config(3, "32-true"));
  const std::string set =
      " run.toml --set data.source=rows.jsonl train.objective=sft data.template=none data.sequence_length=32 "
      "data.validation=0 batch.global_batch_size=2 batch.micro_batch_size=1";
  const Result described = mantissa(folder, "data inspect" + set);
  EXPECT_EQ(described.code, 0) << described.err;
  // Prompts of 1 to 8 bytes, and answers of 3 bytes and an end.
  EXPECT_TRUE(has(described.out, "\ntokens      68\n") || described.out.starts_with("tokens      68\n"))
      << described.out;
  EXPECT_TRUE(has(described.out, "\nmasked      46.7 %\n")) << described.out;
  const Result plan = mantissa(folder, "train --dry-run" + set);
  EXPECT_TRUE(has(plan.out, "8 used with 68 tokens, 46.7 % of them masked")) << plan.out << plan.err;
}

TEST_F(DataCommands, ArraysAndCsvTrainAsJsonLinesDo) {
  std::string lines, array, csv = "instruction,input,output,rejected\r\n", named = "query,context,reply\n";
  for (int i = 0; i < 8; ++i) {
    const std::string n = std::to_string(i), input = i % 2 == 0 ? "" : R"(a, \"b\"\n)" + n;
    const std::string quoted = i % 2 == 0 ? "" : "\"a, \"\"b\"\"\n" + n + "\"";
    lines +=
        "{\"instruction\": \"add " + n + "\", \"input\": \"" + input + "\", \"output\": \"x" + n + "\"}\n";
    csv += "add " + n + "," + quoted + ",x" + n + ",y\r\n";
    named += "add " + n + "," + quoted + ",x" + n + "\n";
  }
  array = "[" + lines;
  for (std::size_t at = array.find("}\n"); at + 2 < array.size(); at = array.find("}\n", at + 2))
    array.insert(at + 1, ",");
  write(folder / "rows.jsonl", lines);
  write(folder / "rows.json", array + "]");
  write(folder / "rows.csv", csv);
  write(folder / "named.csv", named);
  write(folder / "run.toml", tiny_config(3, "32-true"));
  const auto set = [](const std::string& file, const std::string& fields) {
    return " run.toml --set data.source=" + file +
           " train.objective=sft data.template=none data.sequence_length=48 data.validation=0 "
           "batch.global_batch_size=4 batch.micro_batch_size=1" +
           (fields.empty() ? "" : " 'data.fields=" + fields + "'");
  };
  const auto trained = [&](const std::string& file, const std::string& fields = "") {
    const Result result = mantissa(folder, "train --json --overwrite --out o" + set(file, fields));
    EXPECT_EQ(result.code, 0) << file << ": " << result.err;
    return result.code == 0 ? json::parse(result.out)["weights_xxh64"] : json();
  };
  const json hash = trained("rows.jsonl");
  for (const char* file : {"rows.json", "rows.csv"}) EXPECT_EQ(trained(file), hash) << file;
  EXPECT_EQ(trained("named.csv", "{prompt = [\"query\", \"context\"], completion = \"reply\"}"), hash);
  EXPECT_NE(trained("rows.csv", "{prompt = \"instruction\", completion = \"rejected\"}"), hash);
  const std::string out = mantissa(folder, "data inspect" + set("rows.json", "")).out;
  EXPECT_TRUE(has(out, "\nsample      \"[[add 0]]x0\\u0000\"\n")) << out;
  EXPECT_TRUE(out.ends_with("\n[[…]]       is masked: read, but not trained\n")) << out;
  const Result plan =
      mantissa(folder, "explain" + set("named.csv", "{prompt = \"query\", completion = \"reply\"}"));
  EXPECT_TRUE(has(plan.out + plan.err, "data.fields: completion is \"reply\", prompt is \"query\""))
      << plan.out;
  expect_refused(
      "data inspect" + set("named.csv", ""),
      "named.csv:2 (row 1): no conversation; a row has \"messages\", or one of prompt, instruction, "
      "question and one of completion, response, output, answer, or \"input_ids\". Its fields: query, "
      "context, reply. Fix: name the fields");
}

TEST_F(DataCommands, ShardsOfArraysAndCsvAreThoseOfJsonLines) {
  write(folder / "a.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two, \\n\\\"\"}\n");
  write(folder / "b.json", "[{\"text\": \"one\"}, {\"text\": \"two, \\n\\\"\"}]");
  write(folder / "c.csv", "id,text\n1,one\n2,\"two, \n\"\"\"\n");
  for (const char* file : {"a.jsonl", "b.json", "c.csv"}) {
    EXPECT_EQ(
        json_of("data shard " + std::string(file) + " --tokenizer byte --out s --overwrite")["documents"], 2);
    EXPECT_TRUE(read_all(folder / "s/shard-00000.bin")
                    .ends_with(std::string("o\0n\0e\0\0\0t\0w\0o\0,\0 \0\n\0\"\0\0\0", 24)))
        << file;
  }
}

/// The same rows under other names have the same tokens, shards and loss.
TEST_F(DataCommands, FieldsAreNamedAsInAConfig) {
  ASSERT_EQ(train_tiny(folder, 2, "32-true").code, 0);
  write(folder / "a.jsonl", "{\"text\": \"one\\n\\nthe first\"}\n{\"text\": \"two\\n\\nanother\"}\n");
  write(folder / "b.csv", "title,body\none,the first\ntwo,another\n");
  const std::string named = "b.csv --fields text=title+body";
  const auto sizes = [&](const std::string& files) {
    const json d = json_of("data inspect " + files + " --sequence-length 8");
    return std::pair(d["tokens"], d["sample_ids"]);
  };
  EXPECT_EQ(sizes("a.jsonl"), sizes(named));
  json_of("data shard a.jsonl --tokenizer byte --out s");
  json_of("data shard " + named + " --tokenizer byte --out n");
  EXPECT_EQ(read_all(folder / "s/shard-00000.bin"), read_all(folder / "n/shard-00000.bin"));
  EXPECT_EQ(json_of("eval r --data a.jsonl")["loss"], json_of("eval r --data " + named)["loss"]);
  write(folder / "c.jsonl", "{\"prompt\": \"a\", \"completion\": \"bc\"}\n");
  write(folder / "d.jsonl", "{\"query\": \"a\", \"reply\": \"bc\"}\n");
  EXPECT_EQ(
      json_of("eval r --data c.jsonl --template chatml")["loss"],
      json_of("eval r --data d.jsonl --template chatml --fields prompt=query,completion=reply")["loss"]);

  EXPECT_TRUE(has(mantissa(folder, "eval r --data d.jsonl --fields prompt=query,completion=reply").err,
                  "no chat template"))
      << "rows are conversations under the names of their fields";
  expect_refused("data inspect b.csv --fields text", "--fields: \"text\": expected NAME=FIELD");
  expect_refused("data inspect b.csv --fields text=+body", "expected NAME=FIELD");
  expect_refused("data inspect b.csv --fields txt=body", "unknown field \"txt\"; did you mean \"text\"?");
  expect_refused("data inspect b.csv --fields text=body,text=title", "text is given twice");
  expect_refused("data inspect b.csv --fields text=bdy", "no field \"bdy\", the source of \"text\"");
  write(folder / "t.txt", "plain words");
  for (const char* command :
       {"data inspect t.txt", "data shard t.txt --tokenizer byte --out t", "eval r --data t.txt"})
    expect_refused(std::string(command) + " --fields text=body", "t.txt has no rows with fields");
  expect_refused("eval r --last-word a.jsonl --fields text=body", "names the fields of --data FILES");
  expect_refused("data inspect run.toml --fields text=body", "a config has its own data");
  expect_refused("train run.toml --out q --set data.source=t.txt --set 'data.fields={text = \"body\"}'",
                 "t.txt has no rows with fields. Fix: remove data.fields");
}

TEST_F(DataCommands, ShardsAreWrittenDescribedAndTrainedOn) {
  std::string rows;
  for (int i = 0; i < 300; ++i) rows += "{\"text\": \"document " + std::to_string(i * i) + "\"}\n";
  write(folder / "a.jsonl", rows);
  EXPECT_EQ(json_of("data shard a.jsonl --tokenizer byte --out parts --shard-tokens 2000")["shards"], 3);
  const json shards = json_of("data shard a.jsonl --tokenizer byte --out s");
  EXPECT_EQ(shards["documents"], 300);
  EXPECT_EQ(shards["shards"], 1);
  json text = json_of("data inspect a.jsonl --sequence-length 32 --packing"),
       ids = json_of("data inspect 's/*.bin' --sequence-length 32 --packing --tokenizer byte");
  EXPECT_EQ(json_of("data inspect 's/*.bin' --sequence-length 32 --packing"), ids)
      << "the header's tokenizer";
  EXPECT_EQ(ids["sources"][0]["name"], "s/*.bin");
  EXPECT_EQ(text["sources"][0]["name"], "a.jsonl");
  for (json* description : {&ids, &text}) (*description)["sources"][0].erase("name");
  EXPECT_EQ(ids, text);
  EXPECT_EQ(text["sample_ids"][0][0], 'd');
  EXPECT_TRUE(
      has(text["samples"][0].get<std::string>(), "document 4"));  // whole, as nothing in the pack is masked
  EXPECT_FALSE(has(text["samples"][0].get<std::string>(), "[["));
  EXPECT_EQ(text["documents"], 300);
  EXPECT_EQ(text["tokens"], shards["tokens"]);
  write(folder / "run.toml", tiny_config(3, "32-true"));
  const std::string set = " --set data.sequence_length=16 --set data.packing=true --set data.source=";
  EXPECT_EQ(mantissa(folder, "train run.toml --out a --quiet" + set + "a.jsonl").code, 0);
  EXPECT_EQ(mantissa(folder, "train run.toml --out b --quiet" + set + "'s/shard-*.bin'").code, 0);
  EXPECT_EQ(json::parse(read_all(folder / "a/summary.json"))["weights_xxh64"],
            json::parse(read_all(folder / "b/summary.json"))["weights_xxh64"]);
  expect_refused("data shard a.jsonl --tokenizer byte --out s", "replace it with --overwrite");
  expect_refused("data shard a.jsonl --out t", "requires --tokenizer");
  expect_refused("data shard a.jsonl --tokenizer byte", "requires --out");
  expect_refused("data inspect run.toml --packing", "a config has its own data");
  const Result description = mantissa(folder, "data inspect run.toml --samples 1");
  EXPECT_TRUE(has(description.out, "masked      0.0 %")) << description.out << description.err;
  EXPECT_TRUE(has(description.out, "\nrepeats     0.")) << description.out;
  EXPECT_TRUE(has(description.out, "sample      \"(1) ") &&
              has(description.out, "\n  ids       40 49 41 32 "))
      << description.out;
  const Result mixture = mantissa(
      folder,
      "data inspect run.toml --set 'data.source=[\"kk\", \"a.jsonl\"]' --set 'data.weights=[0.25, 0.75]'");
  EXPECT_TRUE(has(mixture.out, "  share    tokens      rows  held out  repeats\n"))
      << mixture.out << mixture.err;
  EXPECT_TRUE(has(mixture.out, "  25.0  ") && has(mixture.out, "  75.0  ")) << mixture.out;
  expect_refused(
      "train run.toml --out c --set data.source='s/*.bin' --set data.tokenizer=" MANTISSA_SOURCE_DIR
      "/examples/demo-tokenizer.json --set model.vocab_size=406",
      "got ids of \"byte\" (256 entries)");
  EXPECT_FALSE(std::filesystem::exists(folder / "c"));
}

TEST_F(DataCommands, PromptsComeFromAFileAndTextsEndAtAStop) {
  ASSERT_EQ(train_tiny(folder, 3, "32-true").code, 0);
  write(folder / "p.jsonl", "{\"prompt\": \"Ann said\"}\n{\"text\": \"Ben said\"}\n");
  write(folder / "p.txt", "Ann said\r\n\r\nBen said\r\n");  // as Windows ends lines
  const std::string options = " --max-new-tokens 20 --temperature 1 --min-p 0.01 --repetition-penalty 1.1";
  const json rows = json_of("generate r --prompts p.jsonl" + options),
             lines = json_of("generate r --prompts p.txt" + options);
  ASSERT_EQ(rows["generations"].size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(rows["generations"][i]["ids"], lines["generations"][i]["ids"]);
  }
  const json alone = json_of("generate r --prompt 'Ben said'" + options);
  EXPECT_EQ(alone["ids"], rows["generations"][1]["ids"]);
  double sum = 0;
  for (const json& log_prob : alone["log_probs"]) sum += log_prob.get<double>();
  EXPECT_DOUBLE_EQ(alone["log_prob"].get<double>(), sum);

  // The text of a hardly trained model is any bytes: it ends at one of its letters or digits.
  const std::string text = alone["text"];
  const auto at =
      std::ranges::find_if(text, [](unsigned char c) { return c < 0x80 && std::isalnum(c) != 0; });
  ASSERT_NE(at, text.end());
  const json stopped = json_of("generate r --prompt 'Ben said'" + options + " --stop " + *at);
  EXPECT_EQ(stopped["text"], std::string(text.begin(), at));
  EXPECT_LT(stopped["ids"].size(), alone["ids"].size());
  const Result whole = mantissa(folder, "generate r --prompt 'Ben said'" + options),
               streamed = mantissa(folder, "generate r --stream --prompt 'Ben said'" + options);
  EXPECT_EQ(streamed.out, whole.out);
  expect_refused("generate r --stream --samples 2 --prompt a", "--stream: prints the text of one sequence");
  expect_refused("generate r --prompt a --stop ''", "a stop string is empty");
  write(folder / "bad.jsonl", "{\"prompt\": \"a\"}\n{\"promt\": \"a\"}\n");
  expect_refused("generate r --prompts bad.jsonl", "bad.jsonl:2: no string field \"prompt\"");
}

TEST_F(DataCommands, TheBestSamplesAreTheMostLikely) {
  ASSERT_EQ(train_tiny(folder, 3, "32-true").code, 0);
  const std::string options =
      "generate r --prompt a --prompt b --samples 6 --max-new-tokens 4 --temperature 1";
  const json all = json_of(options)["generations"], best = json_of(options + " --best 2")["generations"];
  ASSERT_EQ(all.size(), 12U);
  ASSERT_EQ(best.size(), 4U);
  for (std::size_t p = 0; p < 2; ++p) {
    std::vector<double> scores;
    for (std::size_t s = 0; s < 6; ++s) scores.push_back(all[6 * p + s]["log_prob"]);
    std::ranges::sort(scores, std::greater());
    for (std::size_t k = 0; k < 2; ++k) {
      EXPECT_EQ(best[2 * p + k]["prompt"], p);
      EXPECT_EQ(best[2 * p + k]["log_prob"], scores[k]);
    }
  }
  expect_refused("generate r --prompt a --samples 2 --best 3", "--best");
}

TEST_F(DataCommands, WindowsAndChoicesAreEvaluated) {
  ASSERT_EQ(train_tiny(folder, 3, "32-true").code, 0);
  std::string text;
  for (int i = 0; i < 30; ++i) text += "word " + std::to_string(i * i);
  write(folder / "t.txt", text);
  const auto size = static_cast<std::int64_t>(text.size());
  const json whole = json_of("eval r --data t.txt --sequence-length " + std::to_string(size - 1)),
             one = json_of("eval r --data t.txt --window " + std::to_string(size + 5)),
             some = json_of("eval r --data t.txt --window 40 --stride 10");
  EXPECT_EQ(one["tokens"], size - 1);
  EXPECT_EQ(some["tokens"], size - 1);
  EXPECT_EQ(some["bytes"], size - 1);
  // A sum of fewer than 512 terms in double.
  EXPECT_NEAR(one["loss"].get<double>(), whole["loss"].get<double>(),
              512 * 0x1p-53 * whole["loss"].get<double>());
  EXPECT_NE(some["loss"], whole["loss"]);
  write(folder / "q.jsonl",
        "{\"query\": \"a b\", \"choices\": [\"c\", \"dd\"], \"gold\": 1}\n"
        "{\"query\": \"e f\", \"choices\": [\"g\", \"hh\", \"i\"], \"gold\": 0}\n");
  const json choices = json_of("eval r --multiple-choice q.jsonl")["multiple_choice"];
  EXPECT_EQ(choices["questions"], 2);
  EXPECT_EQ(choices["log_probs"][1].size(), 3U);
  const Result table = mantissa(folder, "eval r --multiple-choice q.jsonl --precision 32-true,bf16-true");
  EXPECT_TRUE(has(table.out, "acc_norm")) << table.out << table.err;
  EXPECT_TRUE(has(mantissa(folder, "eval r --multiple-choice q.jsonl").out, "of 2 questions right"));
  expect_refused("eval r --data t.txt --stride 3", "requires --window");
  expect_refused("eval r --data t.txt --window 8 --stride 9", "--stride");
  const json puzzles = json_of("eval r --data kk --puzzles 4 --people-max 2");
  EXPECT_EQ(puzzles["by_people"].size(), 1U);
  EXPECT_EQ(puzzles["by_people"][0]["people"], 2);
  EXPECT_EQ(puzzles["by_people"][0]["puzzles"], 4);
}

TEST_F(DataCommands, DocumentsAreEvaluatedAlone) {
  ASSERT_EQ(train_tiny(folder, 3, "32-true").code, 0);
  std::string text = "A text of five words.\n\tThis is its second line. ";
  while (text.size() < 120) text += "x";
  write(folder / "d.jsonl", json{{"text", text}}.dump() + "\n");
  // The separator, which is 0, begins a document; the rows of a stream that begins with it are the same.
  write(folder / "t.txt", std::string(1, '\0') + text);
  for (const char* length : {"40", "120"}) {
    const json rows = json_of(std::string("eval r --data t.txt --sequence-length ") + length),
               alone = json_of(std::string("eval r --data d.jsonl --documents --window ") + length);
    EXPECT_EQ(alone["loss"], rows["loss"]) << length;
    EXPECT_EQ(alone["tokens"], 120);
    EXPECT_EQ(alone["bytes"], 120);
    EXPECT_EQ(alone["words"], 11) << "as many as re.split(r'\\s+', text) of Python returns";
    EXPECT_DOUBLE_EQ(alone["word_perplexity"].get<double>(),
                     std::exp(alone["loss"].get<double>() * 120 / 11));
    EXPECT_NEAR(alone["byte_perplexity"].get<double>(), alone["perplexity"].get<double>(), 1e-9);
  }
  // The last part predicts one byte, from the 119 before it.
  write(folder / "less.jsonl", json{{"text", text.substr(0, 119)}}.dump() + "\n");
  write(folder / "all.txt", text);
  write(folder / "less.txt", text.substr(0, 119));
  const auto sum = [&](const std::string& arguments) {
    const json e = json_of("eval r " + arguments);
    return e["loss"].get<double>() * e["tokens"].get<double>();
  };
  EXPECT_NEAR(sum("--data d.jsonl --documents --window 119"),
              sum("--data less.jsonl --documents --window 119") +
                  sum("--data all.txt --sequence-length 119") - sum("--data less.txt --sequence-length 118"),
              1e-9);
  // Another document changes nothing.
  write(folder / "two.jsonl",
        json{{"text", text}}.dump() + "\n" + json{{"text", text + "y z"}}.dump() + "\n");
  write(folder / "second.jsonl", json{{"text", text + "y z"}}.dump() + "\n");
  const json first = json_of("eval r --data d.jsonl --documents --window 50"),
             second = json_of("eval r --data second.jsonl --documents --window 50"),
             both = json_of("eval r --data two.jsonl --documents --window 50");
  EXPECT_EQ(second["tokens"], 123);
  EXPECT_EQ(both["words"], 11 + 12);
  EXPECT_NEAR(both["loss"].get<double>() * 243,
              first["loss"].get<double>() * 120 + second["loss"].get<double>() * 123, 1e-9);
  EXPECT_TRUE(has(mantissa(folder, "eval r --data d.jsonl --documents --window 50").out, "words       11, "));
  expect_refused("eval r --data d.jsonl --documents --window 8 --stride 4",
                 "--stride: --documents has its own");
  expect_refused("eval r --documents --last-word d.jsonl", "--documents: requires --data");
  expect_refused("eval r --data kk --documents", "holds no text");
}

TEST_F(DataCommands, PuzzlesAreMixedWithFiles) {
  std::string rows;
  for (int i = 0; i < 60; ++i)
    rows += R"({"prompt": "What is )" + std::to_string(i) + R"(?", "completion": "A number."})" + "\n";
  write(folder / "a.jsonl", rows);
  write(folder / "t.txt", std::string(3000, 'x'));
  write(folder / "run.toml", tiny_config(6, "32-true"));
  const std::string text = " --set 'data.source=[\"kk\", \"t.txt\"]' --set 'data.weights=[0.5, 0.5]'";
  ASSERT_EQ(mantissa(folder, "train run.toml --quiet --out whole" + text).code, 0)
      << read_all(folder / "err");
  ASSERT_EQ(mantissa(folder,
                     "train run.toml --quiet --out parts --set run.steps=3 --set "
                     "schedule.name=constant" +
                         text)
                .code,
            0);
  ASSERT_EQ(
      mantissa(folder, "train run.toml --quiet --out straight --set schedule.name=constant" + text).code, 0);
  ASSERT_EQ(
      mantissa(folder, "train run.toml --quiet --out parts --resume --set schedule.name=constant" + text)
          .code,
      0)
      << read_all(folder / "err");
  const auto weights = [&](const char* run) {
    return json::parse(read_all(folder / run / "summary.json"))["weights_xxh64"];
  };
  EXPECT_EQ(weights("parts"), weights("straight")) << "resumed";
  ASSERT_EQ(mantissa(folder, "train run.toml --quiet --out kk").code, 0);
  EXPECT_NE(weights("whole"), weights("kk"));
  const json puzzles = json_of("eval run.toml --set run.out=whole --puzzles 2" + text);
  EXPECT_EQ(puzzles["puzzles"], 2) << "a run on a mixture answers puzzles too";
  EXPECT_GT(puzzles["bytes"], 0);
  const std::string sft =
      " --set train.objective=sft --set data.template=chatml --set data.sequence_length=900 --set "
      "data.people_max=2 --set 'data.source=[\"kk\", \"a.jsonl\"]' --set 'data.weights=[0.3, 0.7]'";
  const Result r = mantissa(folder, "train run.toml --out sft" + sft);
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(has(r.out + r.err, "note    kk: ") && has(r.out + r.err, "a.jsonl: 60 rows, 60 used"))
      << r.out << r.err;
  expect_refused("train run.toml --out no --set 'data.source=[\"kk\", \"t.txt\"]'", "requires data.weights");
}

TEST_F(DataCommands, NeedlesAreCountedByLengthAndDepth) {
  ASSERT_EQ(train_tiny(folder, 3, "32-true").code, 0);
  const std::string needle = "eval r --needle --trials 2 --depths 0,0.5,1";
  const json found = json_of(needle + " --lengths 240,300 --page n.html")["needle"];
  ASSERT_EQ(found["cells"].size(), 6U);
  EXPECT_EQ(found["cells"][4]["length"], 300);
  EXPECT_EQ(found["cells"][4]["depth"], 0.5);
  EXPECT_EQ(found["cells"][4]["trials"], 2);
  EXPECT_EQ(found["accuracy"], 0) << "a model that hardly trained finds no number of seven digits";
  EXPECT_TRUE(has(read_all(folder / "n.html"), "Needle in a haystack"));
  expect_refused(needle + " --lengths 20", "needle and question alone have");
  expect_refused(needle + " --lengths x", "\"x\" is not a number");
  expect_refused(needle + " --lengths 300 --data a.txt", "--needle is measured alone");
  expect_refused("eval r --data kk --lengths 300", "requires --needle");
}

}  // namespace
}  // namespace mantissa::testing
