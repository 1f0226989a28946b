// A GGUF file in place of a model directory, in every command that takes one.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/cli/run_program.h"

namespace mantissa::testing {
namespace {

using nlohmann::json;

/// `m.gguf` in Q8_0, and `back`, the directory that it is converted to.
class GgufCommands : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 300; ++i) text += "the tokenizer trains on the text\n";
    write(folder / "text.txt", text);
    write(folder / "run.toml",
          "[run]\nsteps = 3\n[model]\nhidden_size = 32\nintermediate_size = 64\nnum_hidden_layers = 1\n"
          "num_attention_heads = 2\nvocab_size = 270\n[data]\nsource = \"text.txt\"\ntokenizer = \"t\"\n"
          "sequence_length = 32\nvalidation = 0.05\n[batch]\nglobal_batch_size = 4\nmicro_batch_size = 2\n");
    for (const char* line :
         {"tokenizer train text.txt --vocab-size 270 --out t", "train run.toml --out r --quiet",
          "convert r/model m.gguf --format gguf --dtype q8_0", "convert m.gguf back"}) {
      const Result r = run(line);
      ASSERT_EQ(r.code, 0) << line << "\n" << r.err;
    }
  }
  Result run(const std::string& arguments) const { return mantissa(folder, arguments); }

  /// Runs the command with MODEL as the file and as the directory, and returns the standard outputs.
  std::pair<std::string, std::string> both(const std::string& command, const std::string& options) const {
    const Result file = run(command + " m.gguf " + options), directory = run(command + " back " + options);
    EXPECT_EQ(file.code, 0) << command << "\n" << file.err;
    EXPECT_EQ(directory.code, 0) << command << "\n" << directory.err;
    EXPECT_FALSE(file.out.empty()) << command;
    return {file.out, directory.out};
  }

  TemporaryFolder folder;
};

TEST_F(GgufCommands, ConvertToAFileByTheEndOfItsNameInAnyCaseOfLetters) {
  ASSERT_EQ(run("convert back q.GGUF --dtype q8_0").code, 0);
  EXPECT_EQ(read_all(folder / "q.GGUF").substr(0, 4), "GGUF");
}

TEST_F(GgufCommands, NoDirectoryGetsTheNameOfAFileOfWeights) {
  for (const char* out : {"x.safetensors", "x.ckpt"}) {
    const Result r = run(std::string("convert back ") + out);
    EXPECT_EQ(r.code, 2) << out;
    EXPECT_TRUE(has(r.err, std::string(out) + ": expected the name of a directory, got one that ends in ."))
        << r.err;
    EXPECT_FALSE(std::filesystem::exists(folder / out));
  }
  for (const char* out : {"x.gguf", "x.GGUF", "x.pth", "x.bin"}) {
    const Result r = run(std::string("merge back adapter ") + out);
    EXPECT_EQ(r.code, 2) << out;
    EXPECT_TRUE(has(r.err, "Fix: mantissa merge back adapter x-merged, then mantissa convert x-merged " +
                               std::string(out)))
        << r.err;
  }
  EXPECT_TRUE(
      has(run("merge back adapter x.safetensors").err, "Fix: mantissa merge back adapter x-merged\n"));
  for (const char* command : {"convert back e --dtype ''", "merge back adapter e --dtype ''"})
    EXPECT_TRUE(has(run(command).err, "--dtype \"\": expected a number format, got an empty value"))
        << command;
}

TEST_F(GgufCommands, PrintWhatTheyPrintOfTheConvertedDirectory) {
  write(folder / "lines", "the text\n");
  const std::pair<const char*, const char*> commands[] = {
      {"generate", "--prompt 'the text' --max-new-tokens 5 --temperature 0"},
      {"generate", "--prompt 'the text' --max-new-tokens 5 --temperature 0 --precision bf16-mixed"},
      {"chat", "--template chatml --max-new-tokens 5 --temperature 0 < lines"},
      {"tokenizer encode", "--text-file text.txt"},
      {"tokenizer decode", "--ids-file ids.txt"},
  };
  write(folder / "ids.txt", run("tokenizer encode back --text-file text.txt").out);
  for (const auto& [command, options] : commands) {
    const auto [file, directory] = both(command, options);
    EXPECT_EQ(file, directory) << command << " " << options;
  }
}

TEST_F(GgufCommands, EvaluateTheSameFiguresWithFewerBytesOfWeights) {
  write(folder / "passages.txt", "the tokenizer trains on the text\nthe text trains the tokenizer\n");
  const auto [file, directory] =
      both("eval", "--data text.txt --last-word passages.txt --sequence-length 16 --json");
  json of_file = json::parse(file), of_directory = json::parse(directory);
  EXPECT_GT(of_file["bytes"], 0);
  EXPECT_EQ(of_file["last_words"]["passages"], 2);
  EXPECT_LT(of_file["weight_bytes"].get<double>(), 0.3 * of_directory["weight_bytes"].get<double>());
  of_file.erase("weight_bytes");
  of_directory.erase("weight_bytes");
  EXPECT_EQ(of_file, of_directory);
}

TEST_F(GgufCommands, TraceTheSameValues) {
  write_ids(folder);
  for (const char* grads : {"", " --grads"}) {
    run("trace m.gguf --tokens ids --out a.safetensors" + std::string(grads));
    run("trace back --tokens ids --out b.safetensors" + std::string(grads));
    const std::string a = read_all(folder / "a.safetensors");
    ASSERT_FALSE(a.empty());
    EXPECT_TRUE(a == read_all(folder / "b.safetensors")) << grads;
  }
}

TEST_F(GgufCommands, ExplainTheFilesBytesAndOrigin) {
  const Result file = run("explain m.gguf --json");
  ASSERT_EQ(file.code, 0) << file.err;
  const json plan = json::parse(file.out), wide = json::parse(run("explain back --json").out);
  const std::string notes = plan["notes"].dump();
  EXPECT_NE(notes.find("quantized to q8_0"), std::string::npos) << notes;
  EXPECT_EQ(plan["ops"], wide["ops"]);
  // Nearly all weights are in matrices, whose values have 8.5 bits instead of 32.
  EXPECT_LT(plan["memory"]["weights"].get<double>(), 0.3 * wide["memory"]["weights"].get<double>());
}

TEST_F(GgufCommands, TrainAndAuditFromTheFile) {
  const std::string config = read_all(folder / "run.toml");
  const std::size_t model = config.find("hidden_size"), data = config.find("[data]");
  const auto with = [&](const std::string& path) {
    std::string text = config.substr(0, model) + "path = \"" + path + "\"\n" + config.substr(data);
    const std::string own = "tokenizer = \"t\"\n";  // the default is the model's
    return text.erase(text.find(own), own.size());
  };
  write(folder / "file.toml", with("m.gguf"));
  write(folder / "directory.toml", with("back"));
  for (const char* name : {"file", "directory"}) {
    const Result r = run(std::string("train ") + name + ".toml --out of-" + name + " --quiet");
    ASSERT_EQ(r.code, 0) << r.err;
  }
  EXPECT_TRUE(read_all(folder / "of-file/model/model.safetensors") ==
              read_all(folder / "of-directory/model/model.safetensors"));
  EXPECT_EQ(read_all(folder / "of-file/model/tokenizer.json"), read_all(folder / "back/tokenizer.json"));
  const Result audit = run("audit m.gguf --data text.txt --steps 1 --out audited --quiet");
  EXPECT_EQ(audit.code, 0) << audit.err;
  EXPECT_TRUE(std::filesystem::exists(folder / "audited/report.html"));
}

/// Its weights stay in the blocks of the file, in formats of the policy, or in other blocks.
TEST_F(GgufCommands, AdaptTheFileAndResumeWhileItIsTheSame) {
  std::string config = read_all(folder / "run.toml");
  const std::size_t model = config.find("hidden_size"), data = config.find("[data]");
  config.replace(model, data - model, "path = \"m.gguf\"\n[adapter]\nkind = \"lora\"\nrank = 2\n");
  config.erase(config.find("tokenizer = \"t\"\n"), std::string("tokenizer = \"t\"\n").size());
  write(folder / "lora.toml",
        config + "[checkpoint]\ninterval = 1\nkeep = 9\n[precision]\npolicy = \"bf16-mixed\"\n");
  const std::string file = read_all(folder / "m.gguf");
  for (const std::string base : {"params", "bf16", "f32", "int8"}) {
    const std::string train = "train lora.toml --quiet --out " + base + " --set adapter.base=" + base;
    const auto adapter = [&] { return read_all(folder / (base + "/adapter/adapter_model.safetensors")); };
    const Result whole = run(train);
    ASSERT_EQ(whole.code, 0) << base << "\n" << whole.err;
    const std::string bytes = adapter();
    const Result resumed = run(train + " --resume=1");
    ASSERT_EQ(resumed.code, 0) << base << "\n" << resumed.err;
    EXPECT_TRUE(adapter() == bytes) << base;
    std::string changed = file;
    char& value = changed[file.size() / 4 * 3];  // of a matrix
    value = static_cast<char>(value ^ 4);
    write(folder / "m.gguf", changed);
    EXPECT_EQ(run(train + " --resume=1").code, 2) << base;
    write(folder / "m.gguf", file);
  }
}

TEST_F(GgufCommands, DamageIsOneMessageAndExitCodeTwo) {
  write(folder / "cut.gguf", read_all(folder / "m.gguf").substr(0, 1000));
  write(folder / "other.gguf", "not a GGUF file");
  write(folder / "text.md", "text");
  for (const std::string command :
       {"generate FILE --prompt x", "eval FILE --data text.txt", "explain FILE",
        "chat FILE --template chatml < text.md", "tokenizer info FILE", "audit FILE --steps 1"}) {
    for (const char* file : {"cut.gguf", "other.gguf"}) {
      std::string line = command;
      line.replace(line.find("FILE"), 4, file);
      const Result r = run(line);
      EXPECT_EQ(r.code, 2) << line;
      EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << line << "\n" << r.err;
      EXPECT_TRUE(has(r.err, file)) << line << "\n" << r.err;
      EXPECT_EQ(r.out, "") << line;
    }
  }
  const Result none = run("generate text.md --prompt x");
  EXPECT_EQ(none.code, 2);
  EXPECT_TRUE(
      has(none.err, "text.md: is neither a model directory, which needs config.json, nor a GGUF file"))
      << none.err;
}

}  // namespace
}  // namespace mantissa::testing
