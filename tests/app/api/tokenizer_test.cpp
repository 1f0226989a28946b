// A model with a tokenizer beside its weights: text is its tokenizer's, and what a run writes keeps it.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/api/tiny.h"
#include "mantissa/app/api/error.h"
#include "mantissa/app/api/mantissa.h"

namespace mantissa::api {
namespace {

using mantissa::testing::has;
using mantissa::testing::into;
using mantissa::testing::read_all;
using mantissa::testing::TemporaryFolder;
using mantissa::testing::tiny_config;
using nlohmann::json;

/// A tokenizer of one token per byte, after "<s>" and "</s>": the id of a byte is its value plus 2. Its
/// template begins a text with "<s>".
json shifted_bytes() {
  json vocab = {{"<s>", 0}, {"</s>", 1}};
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned>(byte));
    vocab[name] = byte + 2;
  }
  const auto special = [](int id, const char* content) {
    return json{{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", false}, {"special", true}};
  };
  const json bos = {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
             text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  return {{"version", "1.0"},
          {"added_tokens", {special(0, "<s>"), special(1, "</s>")}},
          {"normalizer", nullptr},
          {"pre_tokenizer", nullptr},
          {"post_processor",
           {{"type", "TemplateProcessing"},
            {"single", {bos, text}},
            {"pair", {bos, text}},
            {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {0}}, {"tokens", {"<s>"}}}}}}}},
          {"decoder", {{"type", "Sequence"}, {"decoders", {{{"type", "ByteFallback"}}, {{"type", "Fuse"}}}}}},
          {"model", {{"type", "BPE"}, {"byte_fallback", true}, {"vocab", vocab}, {"merges", json::array()}}}};
}

class ModelTokenizer : public ::testing::Test {
 protected:
  void SetUp() override {
    write("text.txt", std::string(200, 'a') + "größer" + std::string(800, 'b'));
    write("tokenizer.json", shifted_bytes().dump());
    write("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
    write("chat_template.jinja", "{{ messages }}");
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder / name, std::ios::binary) << text;
  }
  std::vector<std::string> text_of_folder(const std::string& tokenizer) const {
    return {"data.source=" + (folder / "text.txt").string(), "data.tokenizer=" + tokenizer,
            "model.vocab_size=258"};
  }
  /// Trains a new model on the text with the tokenizer in the folder.
  std::filesystem::path trained() const {
    const std::string tokenizer = (folder / "tokenizer.json").string();
    return train(Config::parse(tiny_config(2, "32-true"), text_of_folder(tokenizer)), into(folder / "run"))
        .model;
  }
  Config from(const std::filesystem::path& model, const std::vector<std::string>& set = {}) const {
    std::string text = tiny_config(2, "32-true");
    const std::size_t first = text.find("hidden_size"), last = text.find("[data]");
    text.replace(first, last - first, "path = \"" + model.string() + "\"\n");
    std::vector<std::string> all = {"data.source=" + (folder / "text.txt").string()};
    all.insert(all.end(), set.begin(), set.end());
    return Config::parse(text, all);
  }
  TemporaryFolder folder;
};

TEST_F(ModelTokenizer, IsCopiedToTheModelOfARunAndToThoseThatStartFromIt) {
  const std::filesystem::path model = trained();
  const std::filesystem::path next = train(from(model), into(folder / "next")).model;
  const std::filesystem::path third = train(from(folder / "next"), into(folder / "third")).model;
  for (const std::filesystem::path& written : {model, next, third}) {
    for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"})
      EXPECT_EQ(read_all(written / name), read_all(folder / name)) << written / name;
  }
}

TEST_F(ModelTokenizer, HasSettingsWithItsTokensIfItsFileHasNone) {
  std::filesystem::rename(folder / "tokenizer.json", folder / "own.tokenizer.json");
  std::filesystem::remove(folder / "tokenizer_config.json");
  const std::string tokenizer = (folder / "own.tokenizer.json").string();
  const std::filesystem::path model =
      train(Config::parse(tiny_config(2, "32-true"), text_of_folder(tokenizer)), into(folder / "run")).model;
  EXPECT_EQ(read_all(model / "tokenizer.json"), read_all(tokenizer));
  const json settings = json::parse(read_all(model / "tokenizer_config.json"));
  EXPECT_EQ(settings["bos_token"], "<s>") << "its template begins a text with it";
  EXPECT_EQ(settings["eos_token"], "</s>");
  EXPECT_EQ(settings["pad_token"], "</s>");
  const std::filesystem::path next = train(from(model), into(folder / "next")).model;
  EXPECT_EQ(read_all(next / "tokenizer_config.json"), read_all(model / "tokenizer_config.json"));
  // Conversations of the run have no begin token, so the written template has none.
  std::vector<std::string> sft = text_of_folder(tokenizer);
  sft[0] = "data.source=kk";
  for (const char* set :
       {"train.objective=sft", "data.template=llama3", "data.people_max=2", "data.sequence_length=2000"})
    sft.emplace_back(set);
  const std::filesystem::path chat =
      train(Config::parse(tiny_config(2, "32-true"), sft), into(folder / "chat")).model;
  EXPECT_TRUE(read_all(chat / "chat_template.jinja").starts_with("{% set bos_token = '' %}"));
}

TEST_F(ModelTokenizer, OfBytesIsWrittenAsAFileThatStandsForBytes) {
  const std::vector<std::string> text = {"data.source=" + (folder / "text.txt").string()};
  const std::filesystem::path model =
      train(Config::parse(tiny_config(2, "32-true"), text), into(folder / "run")).model;
  EXPECT_EQ(json::parse(read_all(model / "tokenizer_config.json"))["eos_token"], std::string(1, '\0'));
  EXPECT_EQ(Tokenizer(model.string()).name(), "byte");
  EXPECT_EQ(Tokenizer(model.string()).encode("\xff"), (std::vector<std::int32_t>{0xff}));
  // Also by a run that names the tokenizer, as configs do whose models had no file.
  const std::filesystem::path next = train(from(model, {"data.tokenizer=byte"}), into(folder / "next")).model;
  EXPECT_EQ(read_all(next / "tokenizer.json"), read_all(model / "tokenizer.json"));
  // A model with more entries than bytes.
  const std::filesystem::path larger =
      train(Config::parse(tiny_config(2, "32-true"), {text[0], "model.vocab_size=300"}), into(folder / "l"))
          .model;
  GenerateOptions options;
  options.prompt = "ab";
  options.max_new_tokens = 2;
  EXPECT_EQ(generate(larger, options).prompt_ids, (std::vector<std::int32_t>{'a', 'b'}));
  // Ids from a file are not bytes.
  write("ids.bin", std::string(8000, '\1'));
  const std::filesystem::path ids =
      train(Config::parse(tiny_config(2, "32-true"),
                          {"data.source=" + (folder / "ids.bin").string(), "model.vocab_size=300"}),
            into(folder / "i"))
          .model;
  EXPECT_FALSE(std::filesystem::exists(ids / "tokenizer.json"));
}

TEST_F(ModelTokenizer, ThatIsMissingIsRefusedByAPlanAsByItsRun) {
  write("ids.bin", std::string(8000, '\0'));
  const Config config = Config::parse(
      tiny_config(2, "32-true"),
      {"data.source=" + (folder / "ids.bin").string(), "data.tokenizer=" + (folder / "no.json").string()});
  const auto message = [&](const auto& call) -> std::string {
    try {
      call();
    } catch (const FileError& e) {
      return e.what();
    }
    return "";
  };
  const std::string refusal = message([&] { train(config, into(folder / "a")); });
  EXPECT_TRUE(has(refusal, "no.json")) << refusal;
  EXPECT_EQ(message([&] { explain(config); }), refusal);
}

TEST_F(ModelTokenizer, IsTheDefaultOfAModelThatHasOne) {
  const std::filesystem::path model = trained();
  EXPECT_TRUE(has(from(model).toml(), "tokenizer = \"model\""));
  EXPECT_TRUE(has(Config::parse(tiny_config(2, "32-true")).toml(), "tokenizer = \"byte\""));
  try {
    train(from(model, {"data.tokenizer=byte"}), into(folder / "a"));
    FAIL();
  } catch (const ConfigError& e) {
    EXPECT_TRUE(has(e.what(), "data.tokenizer = \"model\"")) << e.what();
  }
}

TEST_F(ModelTokenizer, EncodesThePromptWithItsTemplateAndStreamsTheText) {
  const std::filesystem::path model = trained();
  GenerateOptions options;
  options.prompt = "ab";
  options.max_new_tokens = 40;
  options.samples = 2;
  std::vector<std::string> parts(2);
  options.on_token = [&](const Token& token) {
    parts[static_cast<std::size_t>(token.sample)] += token.text;
    return true;
  };
  const Prompt prompt{"ab", {}};
  const Generations made = generate(model, {&prompt, 1}, options);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(made.all[i].prompt_ids, (std::vector<std::int32_t>{0, 'a' + 2, 'b' + 2}));
    EXPECT_EQ(parts[i], made.all[i].text);
  }
}

TEST_F(ModelTokenizer, EndsATextAtTheIdsOfTheGenerationSettingsOrAtItsOwnEnd) {
  const std::filesystem::path model = trained();
  GenerateOptions options;
  options.prompt = "ab";
  options.max_new_tokens = 8;
  const std::vector<std::int32_t> all = generate(model, options).ids;
  ASSERT_EQ(all.size(), 8U);
  std::ofstream(model / "generation_config.json") << json{{"eos_token_id", {1, all[0]}}};
  EXPECT_EQ(generate(model, options).ids, (std::vector<std::int32_t>{all[0]}));
  EXPECT_EQ(generate(model, options).text, "");
  std::filesystem::remove(model / "generation_config.json");
  json settings = {{"eos_token", "<0x" + fmt::format("{:02X}", all[0] - 2) + ">"}};
  std::ofstream(model / "tokenizer_config.json") << settings;
  EXPECT_EQ(generate(model, options).ids, (std::vector<std::int32_t>{all[0]}));
}

TEST_F(ModelTokenizer, IsUsedByEvaluateAndAudit) {
  const std::filesystem::path model = trained();
  const std::vector<std::string> files = {(folder / "text.txt").string()};
  const Evaluation e = evaluate(model, files, "auto", 32, 0, {});
  // 1008 bytes are 1008 ids: 31 rows of 32 predictions.
  EXPECT_EQ(e.tokens, 31 * 32);
  EXPECT_EQ(e.bytes, 31 * 32);
  // Both are the same sum, divided once or twice.
  EXPECT_NEAR(e.bits_per_byte, e.loss / std::log(2.0), 1e-12);
  // A row of 29 predictions ends within the "ö".
  const Evaluation cut = evaluate(model, files, "auto", 29, 0, {});
  EXPECT_EQ(cut.tokens, 34 * 29);
  EXPECT_EQ(cut.bytes, 34 * 29);
}

TEST_F(ModelTokenizer, CountsNoBytesForTheTokensBetweenDocuments) {
  const std::filesystem::path model = trained();
  // Documents of 10 and 9 bytes with "</s>" after each are 21 ids, and 20 predictions in one row: all except
  // the first byte.
  write("two.jsonl", "{\"text\": \"größerer\"}\n{\"text\": \"abcdefghi\"}\n");
  const Evaluation e = evaluate(model, {(folder / "two.jsonl").string()}, "auto", 64, 0, {});
  EXPECT_EQ(e.tokens, 20);
  EXPECT_EQ(e.bytes, 18);
  EXPECT_NEAR(e.bits_per_byte, e.loss * 20 / 18 / std::log(2.0), 1e-12);
}

TEST_F(ModelTokenizer, ThatIsDamagedIsOneErrorUnlessTheDataAreIds) {
  const std::filesystem::path model = trained();
  std::ofstream(model / "tokenizer.json") << "{}";
  const auto refused = [&](const auto& run) {
    try {
      run();
    } catch (const FileError& e) {
      return has(e.what(), (model / "tokenizer.json").string());
    }
    return false;
  };
  EXPECT_TRUE(refused([&] { train(from(model), into(folder / "a")); }));
  EXPECT_TRUE(refused([&] { evaluate(model, {(folder / "text.txt").string()}, "auto", 32, 0, {}); }));
  write("ids.bin", std::string(4000, '\0'));
  const std::vector<std::string> ids = {"data.source=" + (folder / "ids.bin").string(), "data.format=tokens"};
  EXPECT_EQ(train(from(model, ids), into(folder / "a")).steps, 2);
}

TEST_F(ModelTokenizer, IsKeptByARunThatHasOnlyAState) {
  const std::filesystem::path run = trained().parent_path(), state = run / "state/step-00000002";
  GenerateOptions options;
  options.prompt = "größer";
  options.max_new_tokens = 4;
  const Generation expected = generate(run, options);
  ASSERT_EQ(expected.prompt_ids.size(), 1 + std::string("größer").size());
  std::filesystem::remove_all(run / "model");
  std::filesystem::rename(folder / "tokenizer.json", folder / "elsewhere.json");  // the run has copies
  for (const std::filesystem::path& model : {run, state}) {
    EXPECT_EQ(generate(model, options).prompt_ids, expected.prompt_ids);
    EXPECT_EQ(generate(model, options).text, expected.text);
    EXPECT_EQ(evaluate(model, {(folder / "text.txt").string()}, "auto", 32, 0, {}).tokens, 31 * 32);
    EXPECT_EQ(Tokenizer(model.string()).encode("a"), (std::vector<std::int32_t>{0, 'a' + 2}));
    EXPECT_TRUE(has(from(model).toml(), "tokenizer = \"model\""));
    ConvertOptions conversion;
    conversion.in = model;
    conversion.out = folder / "converted";
    conversion.overwrite = true;
    convert(conversion);
    for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"})
      EXPECT_EQ(read_all(folder / "converted" / name), read_all(run / "tokenizer" / name)) << name;
    EXPECT_EQ(generate(folder / "converted", options).text, expected.text);
  }
  const std::filesystem::path next = train(from(run), into(folder / "next")).model;
  EXPECT_EQ(read_all(next / "tokenizer.json"), read_all(run / "tokenizer/tokenizer.json"));
}

TEST_F(ModelTokenizer, OfAnOverwrittenRunDoesNotRemain) {
  const std::filesystem::path run = trained().parent_path();
  EXPECT_TRUE(std::filesystem::exists(run / "tokenizer/tokenizer.json"));
  TrainOptions options = into(run);
  options.overwrite = true;
  train(Config::parse(tiny_config(2, "32-true")), options);
  EXPECT_EQ(Tokenizer((run / "tokenizer").string()).name(), "byte");
  EXPECT_FALSE(std::filesystem::exists(run / "tokenizer/chat_template.jinja"));
}

TEST_F(ModelTokenizer, MayHaveMoreEntriesThanTheModelIfTheTextHasNone) {
  const std::filesystem::path model = trained();
  json larger = shifted_bytes();
  larger["added_tokens"].push_back({{"id", 258},
                                    {"content", "größ"},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", false},
                                    {"special", false}});
  std::ofstream(model / "tokenizer.json") << larger;
  const auto refused = [&](const std::string& where, const auto& run) {
    try {
      run();
    } catch (const ConfigError& e) {
      EXPECT_TRUE(has(e.what(), where + ": the token \"größ\" has the id 258")) << e.what();
      EXPECT_TRUE(has(e.what(), "vocab_size is 258")) << e.what();
      return true;
    }
    return false;
  };
  GenerateOptions options;
  options.prompt = "ist größer";
  EXPECT_TRUE(refused("the prompt", [&] { generate(model, options); }));
  options.prompt = "ist gross";
  EXPECT_FALSE(generate(model, options).ids.empty());
  write("bad.txt", std::string(200, 'a') + "\ngrößer\n" + std::string(800, 'b'));
  write("good.txt", std::string(1000, 'b'));
  const std::string bad = (folder / "bad.txt").string(), good = (folder / "good.txt").string();
  EXPECT_TRUE(refused(bad + ":2", [&] { evaluate(model, {bad}, "auto", 32, 0, {}); }));
  EXPECT_TRUE(refused(bad + ":2", [&] { train(from(model, {"data.source=" + bad}), into(folder / "a")); }));
  EXPECT_FALSE(std::filesystem::exists(folder / "a"));
  EvaluateOptions words;
  words.last_words = (folder / "words.txt").string();
  write("words.txt", "es ist gross\nes ist größer\n");
  EXPECT_TRUE(refused(words.last_words + ":2", [&] { evaluate(model, words, {}); }));
  words.passage_limit = 1;
  EXPECT_EQ(evaluate(model, words, {}).last_words.size(), 1U);
  EXPECT_GT(evaluate(model, {good}, "auto", 32, 0, {}).loss, 0);
  const std::filesystem::path next = train(from(model, {"data.source=" + good}), into(folder / "a")).model;
  EXPECT_EQ(read_all(next / "tokenizer.json"), read_all(model / "tokenizer.json"));
}

TEST_F(ModelTokenizer, MayHaveFewerEntriesThanTheModelWhoseOtherIdsAreNotText) {
  const std::filesystem::path model = trained();
  json smaller = shifted_bytes();
  for (int byte = 0; byte < 256; ++byte) smaller["model"]["vocab"].erase(fmt::format("<0x{:02X}>", byte));
  smaller["model"]["vocab"]["a"] = 200;  // so ids between 2 and 200 have no token
  std::ofstream(model / "tokenizer.json") << smaller;
  GenerateOptions options;
  options.prompt = "a";
  options.max_new_tokens = 20;
  options.temperature = 5;
  std::string streamed;
  options.on_token = [&](const Token& token) {
    streamed += token.text;
    return true;
  };
  const Generation made = generate(model, options);
  EXPECT_GE(made.ids.size(), 1U);
  EXPECT_EQ(streamed, made.text);
}

}  // namespace
}  // namespace mantissa::api
