// The commands that write, on tiny inputs.
#pragma once

#include <algorithm>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "faults/machine.h"
#include "mantissa/files/io/safetensors.h"

namespace mantissa::faults {

/// A command, and how it goes on after it failed.
struct Command {
  const char* name;
  const char* run;
  const char* again;                    // gives the result of a run without faults
  std::vector<std::string> outputs;     // what it may write
  std::vector<const char*> needs = {};  // commands that are run before it without faults
  bool stopped = false;                 // the last of these is killed in its middle
  bool prints = false;                  // what it prints is a result too
  const char* foreign = nullptr;        // a file of the user in a folder that it writes
};

inline const std::vector<Command>& commands() {
  static const std::vector<Command> all = {
      {"train", "train run.toml --out r", "train run.toml --out r --resume", {"r"}},
      {"train_into_new_folders",
       "train run.toml --out deep/er/r",
       "train run.toml --out deep/er/r --resume",
       {"deep"}},
      {"resume",
       "train run.toml --out r --resume",
       "train run.toml --out r --resume",
       {"r"},
       {"train run.toml --out r"},
       true},
      {"train_overwrite",
       "train run.toml --out r --overwrite",
       "train run.toml --out r --overwrite",
       {"r"},
       {"train run.toml --out r --set optimizer.lr=1e-3"}},
      {"train_adapter",
       "train lora.toml --out a",
       "train lora.toml --out a --resume",
       {"a"},
       {},
       false,
       false,
       "a/notes.txt"},
      {"rl", "rl rl.toml --out l", "rl rl.toml --out l --resume", {"l"}},
      {"rl_program",
       "rl program.toml --out l --allow-programs",
       "rl program.toml --out l --allow-programs --resume",
       {"l"}},
      {"convert", "convert m c --dtype bf16", "convert m c --dtype bf16 --overwrite", {"c"}},
      {"convert_overwrite",
       "convert m c --dtype bf16 --overwrite",
       "convert m c --dtype bf16 --overwrite",
       {"c"},
       {"convert m c --dtype f16"}},
      {"convert_file",
       "convert m/model.safetensors c.safetensors --dtype bf16",
       "convert m/model.safetensors c.safetensors --dtype bf16 --overwrite",
       {"c.safetensors"}},
      {"convert_gguf", "convert m c.gguf", "convert m c.gguf --overwrite", {"c.gguf"}},
      {"convert_from_gguf", "convert c.gguf g", "convert c.gguf g --overwrite", {"g"}, {"convert m c.gguf"}},
      {"convert_pth", "convert m c.pth", "convert m c.pth --overwrite", {"c.pth"}},
      {"merge", "merge m a x", "merge m a x --overwrite", {"x"}, {"train lora.toml --out a"}},
      {"data_shard",
       "data shard text.txt --tokenizer byte --out d --shard-tokens 1000",
       "data shard text.txt --tokenizer byte --out d --shard-tokens 1000 --overwrite",
       {"d"}},
      {"data_kk",
       "data kk --count 5 --out k.jsonl",
       "data kk --count 5 --out k.jsonl --overwrite",
       {"k.jsonl"}},
      {"tokenizer_train",
       "tokenizer train text.txt --out tok --vocab-size 300",
       "tokenizer train text.txt --out tok --vocab-size 300 --overwrite",
       {"tok"}},
      {"tokenizer_train_beside_notes",
       "tokenizer train text.txt --out tok --vocab-size 300",
       "tokenizer train text.txt --out tok --vocab-size 300 --overwrite",
       {"tok"},
       {},
       false,
       false,
       "tok/notes.txt"},
      {"trace",
       "trace m --tokens ids --out t.safetensors --grads",
       "trace m --tokens ids --out t.safetensors --grads --overwrite",
       {"t.safetensors"}},
      {"audit",
       "audit run.toml --out au --steps 2 --no-cures",
       "audit run.toml --out au --steps 2 --no-cures",
       {"au"}},
      {"audit_beside_a_run",
       "audit run.toml --out r --steps 2 --no-cures",
       "audit run.toml --out r --steps 2 --no-cures",
       {"r"},
       {"train run.toml --out r"}},
      {"compare",
       "compare run.toml --precision 32-true,bf16-true --steps 2 --seeds 1 --out co",
       "compare run.toml --precision 32-true,bf16-true --steps 2 --seeds 1 --out co",
       {"co"}},
      {"eval_page",
       "eval m --needle --lengths 160 --depths 0 --trials 1 --page page.html",
       "eval m --needle --lengths 160 --depths 0 --trials 1 --page page.html",
       {"page.html"}},
      {"eval",
       "eval m --data text.txt --sequence-length 32 --json",
       "eval m --data text.txt --sequence-length 32 --json",
       {},
       {},
       false,
       true},
      {"init", "init pretrain --out new.toml", "init pretrain --out new.toml", {"new.toml"}},
      {"loss_scale",
       "loss-scale --from r/metrics.jsonl --json",
       "loss-scale --from r/metrics.jsonl --json",
       {},
       {"train run.toml --out r"},
       false,
       true},
      {"chat",
       "chat m --max-new-tokens 4 < lines",
       "chat m --max-new-tokens 4 < lines",
       {"saved.json"},
       {},
       false,
       true},
  };
  return all;
}

inline std::string with_options(const std::string& arguments) {
  const bool has_threads = !arguments.starts_with("data kk") && !arguments.starts_with("init") &&
                           !arguments.starts_with("loss-scale");
  const std::size_t end = std::min(arguments.find(" <"), arguments.size());
  return arguments.substr(0, end) + " --quiet" + (has_threads ? " --threads 1" : "") + arguments.substr(end);
}

inline void put(const fs::path& file, const std::string& text) {
  fs::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << text;
}

/// A tiny model. The machine is measured fastest for this policy.
inline std::string model_section() {
  return "[model]\nhidden_size = 16\nintermediate_size = 24\nnum_hidden_layers = 1\n"
         "num_attention_heads = 2\nvocab_size = 256\ntie_word_embeddings = true\n"
         "[precision]\npolicy = \"32-true\"\n";
}

inline std::string rl_config(const std::string& reward) {
  return "[run]\nsteps = 4\n" + model_section() +
         "[data]\nsource = \"kk\"\npeople_max = 2\ntemplate = \"none\"\nvalidation = 0.0001\n"
         "[optimizer]\nlr = 1e-2\n[schedule]\nwarmup_steps = 1\n[checkpoint]\ninterval = 2\nkeep = 2\n"
         "[log]\nhealth_interval = 2\n[rl]\nreward = \"" +
         reward + "\"\nprompts_per_step = 2\nsamples_per_prompt = 2\nmax_new_tokens = 8\n";
}

/// Writes what the commands read, and files of the user that no command may touch.
inline void put_inputs(const Machine& machine) {
  const fs::path work = machine.work();
  std::string text;
  for (int i = 0; i < 60; ++i)
    text += fmt::format("The cat number {} sat on mat {} and saw {} birds.\n", i, i * 7 % 13, i * i % 17);
  put(work / "text.txt", text);
  const std::string training =
      "[data]\nsource = \"text.txt\"\ntokenizer = \"byte\"\nsequence_length = 32\nvalidation = 0.1\n"
      "[batch]\nglobal_batch_size = 4\nmicro_batch_size = 2\n[optimizer]\nlr = 1e-2\n"
      "[schedule]\nwarmup_steps = 2\n[checkpoint]\ninterval = 2\nkeep = 2\n"
      "[log]\nhealth_interval = 2\nobserve = \"*mlp*\"\nobserve_interval = 2\n";
  put(work / "run.toml", "[run]\nsteps = 6\n" + model_section() + training);
  put(work / "lora.toml", "[run]\nsteps = 2\n[model]\npath = \"m\"\n[precision]\npolicy = \"32-true\"\n" +
                              training + "[adapter]\nkind = \"lora\"\nrank = 2\n");
  put(work / "rl.toml", rl_config("regex:[a-m]"));
  put(work / "program.toml", rl_config("program:sh program.sh"));
  // Its rewards depend on its position.
  put(work / "program.sh",
      "n=${MANTISSA_REWARD_POSITION:-0}\nwhile read -r line; do\n  n=$((n + 1))\n"
      "  echo \"{\\\"reward\\\":$((n * 7 % 5))}\"\ndone\n");
  put(work / "lines", "hi\n/save saved.json\n");
  const std::vector<std::int32_t> ids = {72, 101, 108, 108, 111};
  io::write_safetensors(work / "ids",
                        std::vector{io::TensorToWrite{
                            "input_ids", io::Dtype::i32, {1, 5}, std::as_bytes(std::span(ids)), nullptr}});
  put(work / "mine/notes.txt", "my notes\n");
  put(work / "mine/r.partial", "not yours\n");
  fs::permissions(work / "mine/notes.txt", fs::perms::owner_read);
  fs::create_symlink("mine/notes.txt", work / "link");
}

/// Writes the model `m`, which several commands read.
inline void put_model(const Machine& machine) {
  const Ran trained = machine.run(
      "train run.toml --out made --quiet --threads 1 --set checkpoint.interval=9 "
      "--set data.validation=0");
  ASSERT_EQ(trained.code, 0) << trained.err;
  fs::rename(machine.work() / "made/model", machine.work() / "m");
  put(machine.work() / "m/chat_template.jinja",
      "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}<assistant>");
  fs::remove_all(machine.work() / "made");
}

/// Kills a command at the middle of its calls of fsync. `count` is the number of all of them.
inline Ran kill_midway(const Machine& machine, const std::string& arguments) {
  const fs::path saved = machine.root() / "saved";
  fs::copy(machine.work(), saved, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  const Ran whole = machine.run(arguments, {.calls = "sync"});
  fs::remove_all(machine.work());
  fs::rename(saved, machine.work());
  return machine.run(arguments, {.calls = "sync", .at = whole.counts.numbered * 3 / 5, .does = "KILL"});
}

inline bool reads_model(const Command& command) {
  std::vector<const char*> all = command.needs;
  all.push_back(command.run);
  return std::any_of(all.begin(), all.end(), [](std::string_view arguments) {
    return has(arguments, " m ") || has(arguments, " m/") || has(arguments, "lora.toml");
  });
}

/// Brings the folder to the state before a command.
inline void prepare(const Machine& machine, const Command& command) {
  put_inputs(machine);
  if (reads_model(command)) {
    ASSERT_NO_FATAL_FAILURE(put_model(machine));
  }
  if (command.foreign != nullptr) put(machine.work() / command.foreign, "mine\n");
  for (std::size_t i = 0; i < command.needs.size(); ++i) {
    const std::string arguments = with_options(command.needs[i]);
    const bool killed = command.stopped && i + 1 == command.needs.size();
    const Ran ran = killed ? kill_midway(machine, arguments) : machine.run(arguments);
    ASSERT_EQ(ran.code, killed ? -1 : 0) << ran.err;
  }
}

}  // namespace mantissa::faults
