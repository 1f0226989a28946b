// mantissa init: the config of every task is explained, with what its message says to provide.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "app/cli/run_program.h"
#include "mantissa/app/api/mantissa.h"

namespace mantissa::testing {
namespace {

using nlohmann::json;

class Init : public ::testing::TestWithParam<std::string> {
 protected:
  const TemporaryFolder folder_;
  Result run(const std::string& arguments) const { return mantissa(folder_, arguments); }
};
INSTANTIATE_TEST_SUITE_P(Tasks, Init,
                         ::testing::Values("pretrain", "rwkv", "continue", "finetune", "lora", "dpo", "kto",
                                           "reward", "rl", "long-context"),
                         [](const auto& info) {
                           return info.param == "long-context" ? "longcontext" : info.param;
                         });

/// Returns what follows `name` at the beginning of a line, up to its end.
std::string line_of(const std::string& text, const std::string& name) {
  const std::size_t at = ("\n" + text).find("\n" + name);
  if (at == std::string::npos) return {};
  return text.substr(at + name.size(), text.find('\n', at) - at - name.size());
}

TEST_P(Init, ConfigIsExplainedWithWhatItsMessageAsksFor) {
  const std::string file = GetParam() + ".toml";
  const Result wrote = run("init " + GetParam());
  ASSERT_EQ(wrote.code, 0) << wrote.err;
  EXPECT_TRUE(has(wrote.out, "wrote   " + file + "\n")) << wrote.out;
  const bool complete = !has(wrote.out, "\nmodel ");  // explain can tell the time
  EXPECT_EQ(has(line_of(wrote.out, "time    "), complete ? " per step here" : "tells how long the run takes"),
            true)
      << wrote.out;
  std::string settings;
  if (has(wrote.out, "\nmodel   replace MODEL")) {
    write(folder_ / "base.toml",
          "[run]\nsteps = 1\n[model]\nmodel_type = \"llama\"\nhidden_size = 32\nintermediate_size = 48\n"
          "num_hidden_layers = 2\nnum_attention_heads = 4\nnum_key_value_heads = 2\nvocab_size = 256\n"
          "eos_token_id = 0\n[data]\nsource = \"kk\"\nsequence_length = 32\n[batch]\nglobal_batch_size = 1\n"
          "[schedule]\nwarmup_steps = 0\n");
    ASSERT_EQ(run("train base.toml --out base --quiet").code, 0) << read_all(folder_ / "err");
    settings += " --set model.path=base/model data.tokenizer=byte";
    if (!has(GetParam(), "continue")) settings += " data.template=chatml";
  }
  const std::string data = line_of(wrote.out, "data    ");
  if (const std::size_t at = data.find(": rows such as "); at != std::string::npos) {
    std::string rows;
    for (int i = 0; i < 200; ++i)
      rows += json::parse(data.substr(at + std::string(": rows such as ").size())).dump() + "\n";
    write(folder_ / data.substr(0, data.find(' ')), rows);
  } else if (has(data, "*.txt: files of text")) {
    write(folder_ / "a.txt", std::string(std::size_t{1} << 16, 'a'));
  } else {
    EXPECT_TRUE(GetParam() == "rl" || has(data, "generated puzzles")) << wrote.out;
  }
  const std::string explain = line_of(wrote.out, "next    ");
  ASSERT_TRUE(has(explain, " explain " + file)) << wrote.out;
  const Result explained = shell(folder_, explain + settings);
  EXPECT_EQ(explained.code, 0) << explained.err;
  EXPECT_TRUE(has(explained.out, "\nbits    the same for any threads")) << explained.out;
  EXPECT_TRUE(has(wrote.out, GetParam() == "rl" ? " rl rl.toml\n" : " train " + file + "\n")) << wrote.out;
}

TEST_P(Init, KeepsAnExistingFile) {
  write(folder_ / (GetParam() + ".toml"), "");
  const Result r = run("init " + GetParam());
  EXPECT_EQ(r.code, 2);
  EXPECT_TRUE(has(r.err, GetParam() + ".toml: exists already; choose another name with --out FILE")) << r.err;
  EXPECT_EQ(read_all(folder_ / (GetParam() + ".toml")), "");
}

TEST(InitTasks, TheSameCommandAgainFindsItsFile) {
  const TemporaryFolder folder;
  ASSERT_EQ(mantissa(folder, "init pretrain").code, 0);
  const Result again = mantissa(folder, "init pretrain");
  EXPECT_EQ(again.code, 0) << again.err;
  const std::string text = read_all(folder / "pretrain.toml") + "# mine\n";
  write(folder / "pretrain.toml", text);
  EXPECT_EQ(mantissa(folder, "init pretrain").code, 2);
  EXPECT_EQ(read_all(folder / "pretrain.toml"), text);
}

TEST(InitTasks, AreListedAndEachHasATest) {
  const TemporaryFolder folder;
  const Result r = mantissa(folder, "init");
  EXPECT_EQ(r.code, 0) << r.err;
  for (const api::ConfigTask& task : api::config_tasks()) {
    EXPECT_TRUE(has(r.out, "\n  " + task.name + " ")) << r.out;
    EXPECT_TRUE(has(mantissa(folder, "help init").out, task.name)) << task.name;
  }
  EXPECT_EQ(api::config_tasks().size(), 10U) << "add a new task to the tests above";
  const json tasks = json::parse(mantissa(folder, "init --json").out);
  EXPECT_EQ(tasks.size(), 10U);
  EXPECT_EQ(tasks[0]["task"], api::config_tasks()[0].name);
}

TEST(InitTasks, FillInModelAndDataRelativeToTheFile) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "configs");
  std::filesystem::create_directories(folder / "a \"model\"");
  write(folder / "rows.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n");
  const Result r =
      mantissa(folder, "init lora --out configs/mine.toml --model 'a \"model\"' --data rows.jsonl");
  ASSERT_EQ(r.code, 0) << r.err;
  const std::string config = read_all(folder / "configs/mine.toml");
  EXPECT_TRUE(has(config, "\nname = \"mine\"\n")) << config;
  EXPECT_TRUE(has(config, "\npath = \"../a \\\"model\\\"\"\n")) << config;
  EXPECT_TRUE(has(config, "\nsource = \"../rows.jsonl\"\n")) << config;
  EXPECT_FALSE(has(r.out, "model   ") || has(r.out, "data    ")) << "both exist: " << r.out;
  const json out = json::parse(mantissa(folder, "init rl --json").out);
  EXPECT_EQ(out["file"], "rl.toml");
  EXPECT_TRUE(has(out["next"][1].get<std::string>(), " rl rl.toml"));
  std::filesystem::remove(folder / "rl.toml");
  const std::string puzzles = line_of(mantissa(folder, "init rl").out, "data    ");
  EXPECT_TRUE(has(puzzles, "generated puzzles; --data FILES for your own prompts")) << puzzles;
}

TEST(InitTasks, RefuseANameThatNoConfigCanHold) {
  const TemporaryFolder folder;
  write(folder / "b\xff.txt", "text\n");
  const Result r = mantissa(folder, "init pretrain --out a.toml --data 'b\xff.txt'");
  EXPECT_EQ(r.code, 2);
  EXPECT_TRUE(has(r.err, "b\\xff.txt: the name is not UTF-8")) << r.err;
  EXPECT_FALSE(std::filesystem::exists(folder / "a.toml"));
}

TEST(InitTasks, SayWhatADataFileHasAndWhatTheTaskNeeds) {
  const TemporaryFolder folder;
  write(folder / "a.txt", "hello there\n");
  write(folder / "text.jsonl", "{\"text\": \"a\"}\n");
  write(
      folder / "talk.jsonl",
      "\n{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}\n");
  write(folder / "pairs.jsonl", "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}\n");
  write(folder / "questions.jsonl", "{\"prompt\": \"a\"}\n");
  write(folder / "answers.jsonl", "{\"prompt\": \"a\", \"answer\": \"b\"}\n");
  write(folder / "empty.jsonl", "");
  ASSERT_EQ(mantissa(folder, "data kk --out kk.jsonl").code, 0);
  const auto data_line = [&](const std::string& task, const std::string& file) {
    const Result r = mantissa(folder, "init " + task + " --out c.toml --data " + file);
    EXPECT_EQ(r.code, 0) << r.err;
    std::filesystem::remove(folder / "c.toml");
    return line_of(r.out, "data    ");
  };
  const std::tuple<const char*, const char*, const char*, const char*> faults[] = {
      {"lora", "a.txt", "a.txt: not JSON or CSV, but begins with \"hello there\"",
       "; lora needs rows such as {\"messages\""},
      {"finetune", "text.jsonl", "text.jsonl:1: no conversation; a row has \"messages\", or",
       "; finetune needs rows such as {\"messages\""},
      {"lora", "pairs.jsonl", "pairs.jsonl:1: no completion", "; lora needs rows such as {\"messages\""},
      {"dpo", "talk.jsonl", "talk.jsonl:2: no \"chosen\"",
       "; dpo needs rows such as {\"prompt\": \"…\", \"chosen\""},
      {"kto", "talk.jsonl", "talk.jsonl:2: no \"label\"",
       "; kto needs rows such as {\"prompt\": \"…\", \"completion\""},
      {"kto", "kk", "generated rows have no label", "; kto needs rows such as {\"prompt\""},
      {"reward", "empty.jsonl", "empty.jsonl: empty", "; reward needs rows such as {\"prompt\""},
      {"rl", "questions.jsonl", "questions.jsonl:1: no ", "; rl needs rows with a prompt"},
      {"dpo", "kk", "generated rows have one answer each", "; dpo needs rows such as {\"prompt\""},
      {"pretrain", "talk.jsonl", "talk.jsonl:2: no string field \"text\"", "; pretrain needs files of text"},
      {"lora", "later.jsonl", "later.jsonl does not exist yet; expected: ", "rows such as {\"messages\""},
      {"pretrain", "later.txt", "later.txt does not exist yet; expected: ", "files of text"},
      {"lora", "'*.csv'", "no file matches \"*.csv\"", "; lora needs rows such as"}};
  for (const auto& [task, file, there, needed] : faults) {
    const std::string line = data_line(task, file);
    EXPECT_TRUE(has(line, there) && has(line, needed)) << task << " " << file << "\n" << line;
  }
  for (const auto& [task, file] :
       {std::pair{"pretrain", "a.txt"}, std::pair{"pretrain", "text.jsonl"}, std::pair{"lora", "talk.jsonl"},
        std::pair{"dpo", "pairs.jsonl"}, std::pair{"kto", "pairs.jsonl"}, std::pair{"rl", "kk.jsonl"},
        std::pair{"rl", "answers.jsonl"}})
    EXPECT_EQ(data_line(task, file), "") << task << " " << file;
  for (const auto& [file, rule] : {std::pair{"kk.jsonl", "kk"}, std::pair{"answers.jsonl", "exact"}}) {
    ASSERT_EQ(mantissa(folder, std::string("init rl --out c.toml --data ") + file).code, 0);
    EXPECT_TRUE(has(read_all(folder / "c.toml"), fmt::format("\nreward = \"{}\" ", rule))) << file;
    std::filesystem::remove(folder / "c.toml");
  }
}

TEST(InitTasks, GiveTheCommandThatDownloads) {
  const TemporaryFolder folder;
  const std::string files =
      "/resolve/main/{config.json,tokenizer.json,tokenizer_config.json,model.safetensors}'\n";
  for (const char* model :
       {"org/name-1", "https://huggingface.co/org/name-1", "https://huggingface.co/org/name-1/tree/main"}) {
    const Result r = mantissa(folder, std::string("init lora --model ") + model);
    EXPECT_TRUE(
        has(r.out,
            "\n        curl -fL --create-dirs -o 'org/name-1/#1' 'https://huggingface.co/org/name-1" + files))
        << r.out;
    EXPECT_TRUE(has(read_all(folder / "lora.toml"), "\npath = \"org/name-1\"\n"));
    std::filesystem::remove(folder / "lora.toml");
  }
  const Result r = mantissa(folder,
                            "init lora --model https://huggingface.co/org/name/blob/main/a.gguf --data "
                            "'https://a.b/rows.jsonl?download=true'");
  EXPECT_TRUE(
      has(r.out, "\n        curl -fL -o a.gguf https://huggingface.co/org/name/resolve/main/a.gguf\n"))
      << r.out;
  EXPECT_TRUE(has(r.out, "\n        curl -fL -o rows.jsonl 'https://a.b/rows.jsonl?download=true'\n"))
      << r.out;
  const std::string config = read_all(folder / "lora.toml");
  EXPECT_TRUE(has(config, "\npath = \"a.gguf\"\n") && has(config, "\nsource = \"rows.jsonl\"\n")) << config;
  // What exists here is no name of the hub.
  std::filesystem::create_directories(folder / "models/mine");
  EXPECT_FALSE(has(mantissa(folder, "init dpo --model models/mine").out, "curl"));
  EXPECT_TRUE(has(mantissa(folder, "init dpo --out no/folder.toml").err,
                  "no/folder.toml: its folder does not exist"));
}

}  // namespace
}  // namespace mantissa::testing
