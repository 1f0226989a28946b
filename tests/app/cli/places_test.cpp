// Where commands may write: links, devices, inputs, results of other kinds, folders that cannot be written.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "app/cli/run_program.h"

namespace mantissa {
namespace {

namespace fs = std::filesystem;
using testing::has;
using testing::mantissa;
using testing::read_all;
using testing::Result;
using testing::TemporaryFolder;
using testing::write;

/// A run in `r`, a model in `m`, and a text.
class Places : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(testing::train_tiny(folder, 2, "32-true").code, 0);
    ASSERT_EQ(mantissa(folder, "convert r m").code, 0);
    std::string text;
    for (int i = 0; i < 40; ++i) text += "one text of several words, and number " + std::to_string(i) + "\n";
    fs::create_directory(folder / "in");
    write(folder / "in/text.txt", text);
  }
  std::string refusal(const std::string& arguments, const std::string& before = "") {
    const Result r = testing::shell(folder, before + MANTISSA_BINARY_DIR "/mantissa " + arguments);
    EXPECT_EQ(r.code, 2) << arguments << "\n" << r.err;
    EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r.err;
    return r.err;
  }
  void expect_refusals(std::initializer_list<std::pair<const char*, const char*>> cases) {
    for (const auto& [arguments, expected] : cases) {
      const std::string message = refusal(arguments);
      EXPECT_TRUE(has(message, expected)) << arguments << "\n" << message;
    }
  }
  TemporaryFolder folder;
};

/// Every command that writes to a path that the user gives, and its place.
constexpr std::pair<const char*, bool> kWriters[] = {
    {"convert r ", true},
    {"data shard in/text.txt --tokenizer byte --out ", true},
    {"tokenizer train in/text.txt --vocab-size 280 --quiet --out ", true},
    {"train run.toml --quiet --out ", true},
    {"audit run.toml --steps 1 --no-cures --quiet --out ", true},
    {"convert r/model/model.safetensors ", false},
    {"data kk --count 1 --out ", false},
    {"eval m --needle --lengths 160 --depths 0 --trials 1 --page ", false}};

TEST_F(Places, LinksStayAndLeadToTheResult) {
  int number = 0;
  for (const auto& [command, is_directory] : kWriters) {
    const std::string name = "out" + std::to_string(++number), target = "in/" + name;
    fs::create_symlink(target, folder / name);  // leads nowhere
    const Result first = mantissa(folder, command + name);
    EXPECT_EQ(first.code, 0) << command << "\n" << first.err;
    const bool replaces = !has(command, "audit") && !has(command, "eval");
    const Result second = mantissa(folder, command + name + (replaces ? " --overwrite" : ""));
    EXPECT_EQ(second.code, 0) << command << "\n" << second.err;
    EXPECT_TRUE(fs::is_symlink(folder / name)) << command;
    EXPECT_EQ(fs::is_directory(folder / target), is_directory) << command;
    EXPECT_EQ(fs::is_regular_file(folder / target), !is_directory) << command;
  }
  fs::create_symlink("in/new.toml", folder / "new.toml");
  EXPECT_EQ(mantissa(folder, "init pretrain --out new.toml --quiet").code, 0);
  EXPECT_TRUE(fs::is_symlink(folder / "new.toml"));
  EXPECT_TRUE(fs::is_regular_file(folder / "in/new.toml"));
  fs::create_symlink("loop", folder / "loop");
  for (const auto& [command, is_directory] : kWriters)
    EXPECT_TRUE(has(refusal(std::string(command) + "loop"), "Too many levels of symbolic links")) << command;
}

TEST_F(Places, AnOutputIsNotAnInputNorAroundItNorInsideOfIt) {
  const std::string text = read_all(folder / "in/text.txt"),
                    weights = read_all(folder / "m/model.safetensors");
  expect_refusals(
      {{"convert m m --overwrite", "m: is the input itself; choose another OUT"},
       {"convert m m/half --overwrite", "m/half: lies in the input m"},
       {"convert m m/m.gguf", "m/m.gguf: lies in the input m"},
       {"convert m . --overwrite", ".: contains the input m"},
       {"convert r r --overwrite", "r: contains the input r/model"},
       {"convert m/model.safetensors m --overwrite --format pth", "m: contains the input"},
       {"data shard in/text.txt --tokenizer byte --out in --overwrite",
        "in: contains the input in/text.txt; choose another --out"},
       {"data shard in/text.txt --tokenizer byte --out in/text.txt --overwrite",
        "in/text.txt: is the input itself"},
       {"data shard in/text.txt --tokenizer m --out m/shards", "m/shards: lies in the input m"},
       {"tokenizer train m/tokenizer.json --out m --overwrite", "tokenizer.json: is the input itself"},
       {"eval m --needle --lengths 160 --depths 0 --trials 1 --page m/config.json",
        "m/config.json: is the input itself; choose another --page"}});
  EXPECT_EQ(read_all(folder / "in/text.txt"), text);
  EXPECT_EQ(read_all(folder / "m/model.safetensors"), weights);
  EXPECT_FALSE(fs::exists(folder / "m/half"));
}

TEST_F(Places, StatesThatALinkLeadsToAreNotRemoved) {
  ASSERT_EQ(mantissa(folder, "train run.toml --quiet --out run").code, 0);
  fs::remove_all(folder / "run/state");
  fs::create_directory_symlink("../r/state", folder / "run/state");
  for (const char* options : {"", "--overwrite", "--resume --set run.steps=9"}) {
    const std::string message = refusal(std::string("train run.toml --quiet --out run ") + options);
    EXPECT_TRUE(has(message, "run/state: is a link, and a run removes states from its own directory only"))
        << options << message;
  }
  EXPECT_TRUE(fs::exists(folder / "r/state/step-00000002"));
  EXPECT_FALSE(fs::exists(folder / "r/state/step-00000009"));
}

TEST_F(Places, ACopyByHardLinksLeavesItsOriginalAlone) {
  const std::string log = "[log]\nhealth_interval = 1\nobserve = \"*mlp*\"\nobserve_interval = 1\n";
  write(folder / "run.toml", tiny_config(2, "32-true") + log);
  ASSERT_EQ(mantissa(folder, "train run.toml --quiet --out a").code, 0);
  write(folder / "a/.lock", "123\n");  // of a process that was killed
  ASSERT_EQ(testing::shell(folder, "cp -a a before && cp -al a b").code, 0);
  const Result r = mantissa(folder, "train run.toml --quiet --out b --resume --set run.steps=4");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(testing::shell(folder, "diff -r before a").out, "");
  for (const char* name : {"metrics.jsonl", "health.jsonl", "observations.jsonl"}) {
    EXPECT_TRUE(read_all(folder / "b" / name).starts_with(read_all(folder / "a" / name))) << name;
    EXPECT_EQ(fs::hard_link_count(folder / "b" / name), 1U) << name;
  }
  EXPECT_TRUE(has(read_all(folder / "b/metrics.jsonl"), "{\"step\":4,\"loss\""));
}

TEST_F(Places, ARunGoesOnWithoutADamagedFileOfItsStart) {
  write(folder / "run.toml", tiny_config(2, "32-true") + "[log]\nhealth_interval = 1\n");
  ASSERT_EQ(mantissa(folder, "train run.toml --quiet --out a").code, 0);
  write(folder / "a/start.safetensors", "damaged");
  const std::string resume = "train run.toml --quiet --out a --resume --set run.steps=3";
  const std::string message = refusal(resume);
  EXPECT_TRUE(has(message, "a/start.safetensors: is damaged")) << message;
  EXPECT_TRUE(has(message, "Fix: remove it; the run continues without it")) << message;
  fs::remove(folder / "a/start.safetensors");
  EXPECT_EQ(mantissa(folder, resume).code, 0);
}

TEST_F(Places, ARunWhoseDirectoryWasReplacedWritesNothingIntoTheOther) {
  write(folder / "run.toml", tiny_config(100'000, "32-true"));
  const pid_t child = testing::start(folder, "train run.toml --quiet --out o --set checkpoint.interval=200");
  while (!fs::exists(folder / "o/state/step-00000200") && testing::runs(child))
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  fs::rename(folder / "o", folder / "old");
  ASSERT_EQ(mantissa(folder, "train run.toml --quiet --out o --set run.steps=3 run.seed=9").code, 0);
  ASSERT_EQ(testing::shell(folder, "cp -a o before").code, 0);
  const int status = testing::wait_for(child).status;
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1);
  EXPECT_EQ(testing::shell(folder, "diff -r before o").out, "");
}

TEST_F(Places, AStateThatCannotBeRemovedIsNamedOnce) {
  write(folder / "run.toml", tiny_config(12, "32-true"));
  const std::string train = "train run.toml --out q --set checkpoint.keep=1 --set ";
  ASSERT_EQ(mantissa(folder, train + "run.steps=3").code, 0);
  write(folder / "q/state/step-00000003/notes.txt", "mine");
  const Result r = mantissa(folder, train + "run.steps=12 --resume");
  EXPECT_EQ(r.code, 0) << r.err;
  const std::string said =
      "an old state stays, beside the checkpoint.keep = 1 newest: q/state/step-00000003: contains";
  EXPECT_TRUE(has(r.out, said)) << r.out;
  EXPECT_EQ(r.out.find("stays"), r.out.rfind("stays")) << r.out;
  EXPECT_EQ(read_all(folder / "q/state/step-00000003/notes.txt"), "mine");
}

/// What a removal left that failed half way stops no run that does not need its name.
TEST_F(Places, AHalfRemovedStateIsInNobodysWay) {
  const fs::path half = folder / "r/state/step-00000001.partial";
  fs::create_directories(half);
  write(half / ".nfs0001", "held by a reader");
  fs::permissions(half, fs::perms::sticky_bit | fs::perms::owner_all);
  const std::string name = "r/state/step-00000001.partial/.nfs0001: is in an unfinished or earlier result";
  const Result resumed = mantissa(folder, "train run.toml --out r --resume --set run.steps=9");
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_TRUE(has(resumed.out, name)) << resumed.out;
  const std::string said = refusal("train run.toml --out r --overwrite");
  EXPECT_TRUE(has(said, name) && has(said, "Fix: move it away")) << "a new run may need the name: " << said;
  EXPECT_EQ(read_all(half / ".nfs0001"), "held by a reader");
}

TEST_F(Places, AModelWhoseStatesAreGoneIsKept) {
  const std::string weights = read_all(folder / "r/model/model.safetensors");
  fs::remove_all(folder / "r/state");
  for (const char* options : {"", "--resume"}) {
    const Result r =
        mantissa(folder, std::string("train run.toml --quiet --out r --set run.seed=5 ") + options);
    EXPECT_EQ(r.code, 2) << options;
    EXPECT_TRUE(has(r.err, "r/model: is the result of an earlier run, of which no state is here")) << r.err;
    EXPECT_EQ(read_all(folder / "r/model/model.safetensors"), weights) << options;
  }
  EXPECT_EQ(mantissa(folder, "train run.toml --quiet --out r --set run.seed=5 --overwrite").code, 0);
  EXPECT_NE(read_all(folder / "r/model/model.safetensors"), weights);
}

/// A run directory stands for its model or adapter, so a foreign one of the other kind is in the way too.
TEST_F(Places, AModelThatNoRunWroteIsInTheWayOfAnAdapter) {
  write(folder / "lora.toml",
        "[run]\nsteps = 2\n[model]\npath = \"m\"\n[adapter]\nkind = \"lora\"\n[data]\nsource = \"kk\"\n"
        "tokenizer = \"byte\"\nsequence_length = 32\n[batch]\nglobal_batch_size = 1\n");
  for (const auto& [kept, config] : {std::pair{"model", "lora.toml"}, {"adapter", "run.toml"}}) {
    const std::string out = std::string("beside-") + kept;
    fs::create_directories(folder / out / kept);
    write(folder / out / kept / "config.json", "mine");
    for (const char* more : {"", " --overwrite", " --resume"}) {
      const std::string message = refusal(std::string("train ") + config + " --quiet --out " + out + more);
      EXPECT_TRUE(has(message, out + "/" + kept + ": is in the way: the run would stand for it")) << message;
    }
    EXPECT_EQ(read_all(folder / out / kept / "config.json"), "mine");
  }
}

TEST_F(Places, FilesWithoutOverwriteReplaceTheirEarlierOnesAlone) {
  const std::string page = "eval m --needle --lengths 160 --depths 0 --trials 1 --page ";
  write(folder / "thesis.txt", "mine");
  EXPECT_TRUE(has(refusal(page + "thesis.txt"),
                  "thesis.txt: exists already, and is not a page of this program; choose another --page"));
  EXPECT_EQ(mantissa(folder, page + "map.html").code, 0);
  EXPECT_EQ(mantissa(folder, page + "map.html").code, 0);

  const auto save = [&](const std::string& file) {
    write(folder / "lines", "/save " + file + "\n");
    return mantissa(folder, "chat m --template chatml < lines");
  };
  const std::string config = read_all(folder / "m/config.json");
  const std::string row = "{\"messages\": []}\n";
  write(folder / "row.jsonl", row);
  for (const char* foreign : {"thesis.txt", "m/config.json", "row.jsonl"}) {
    const Result r = save(foreign);
    EXPECT_EQ(r.code, 2) << r.err;
    EXPECT_TRUE(has(r.err, std::string(foreign) + ": exists already, and is not a saved chat")) << r.err;
  }
  EXPECT_EQ(read_all(folder / "thesis.txt"), "mine");
  EXPECT_EQ(read_all(folder / "m/config.json"), config);
  EXPECT_EQ(read_all(folder / "row.jsonl"), row);
  EXPECT_EQ(save("talk.json").code, 0);
  EXPECT_EQ(save("talk.json").code, 0);
}

TEST_F(Places, WeightsAndDirectoriesNeedAPlaceThatIsNoDevice) {
  ASSERT_EQ(testing::shell(folder, "mkfifo pipe").code, 0);
  for (const char* place : {"/dev/null", "pipe"}) {
    for (const auto& [command, is_directory] : kWriters) {
      if (has(command, "data kk") || has(command, "eval") || has(command, "train run.toml")) continue;
      const std::string message = refusal(command + std::string(place));
      EXPECT_TRUE(has(message, std::string(place) + ": is a device or a pipe; expected the path of a "))
          << message;
    }
  }
  EXPECT_TRUE(has(refusal("train run.toml --out /dev/null"), "a device or a pipe has this name"));
  // The report goes to standard output.
  EXPECT_TRUE(
      has(refusal("convert r/model/model.safetensors /dev/stdout"), "/dev/stdout: is standard output"));
  const Result full = mantissa(folder, "data kk --count 1 --out /dev/full");
  EXPECT_EQ(full.code, 1);
  EXPECT_TRUE(has(full.err, "/dev/full: the device accepts no more bytes: No space left on device"))
      << full.err;
}

TEST_F(Places, AResultNeverReplacesOneOfAnotherKind) {
  ASSERT_EQ(mantissa(folder, "data shard in/text.txt --tokenizer byte --out shards").code, 0);
  ASSERT_EQ(mantissa(folder, "tokenizer train in/text.txt --vocab-size 280 --quiet --out tok").code, 0);
  expect_refusals(
      {{"data shard in/text.txt --tokenizer byte --out m --overwrite",
        "m: contains a model, which is never replaced by token shards; remove it with rm -r m"},
       {"convert m r --overwrite", "r: contains a training run, which is never replaced by a model"},
       {"convert m shards --overwrite", "shards: contains token shards, which is never replaced by a model"},
       {"convert m tok --overwrite", "tok: contains a tokenizer"},
       {"tokenizer train in/text.txt --vocab-size 280 --quiet --out m --overwrite", "m: contains a model"},
       {"train run.toml --out m --overwrite", "m: contains a model"},
       {"train run.toml --out shards", "shards: contains token shards"}});
  for (const char* same : {"convert r m --overwrite", "train run.toml --out r --overwrite --quiet",
                           "data shard in/text.txt --tokenizer byte --out shards --overwrite"})
    EXPECT_EQ(mantissa(folder, same).code, 0) << same << read_all(folder / "err");
  // A report may be in the directory of a run.
  const std::string audit = "audit r --steps 1 --no-cures --quiet --out r";
  EXPECT_EQ(mantissa(folder, audit).code, 0);
  EXPECT_EQ(mantissa(folder, audit).code, 0) << read_all(folder / "err");
  EXPECT_EQ(mantissa(folder, "train run.toml --out r --overwrite --quiet").code, 0);
  EXPECT_TRUE(
      has(refusal("compare r r --out r"), "r: contains an audit, which is never replaced by a comparison"));
}

TEST_F(Places, AnOverwrittenRunLosesItsTensorBoardFilesToo) {
  const auto events = [&] {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder / "r")) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("events.out.tfevents.")) names.insert(name);
    }
    return names;
  };
  const std::set<std::string> first = events();
  ASSERT_EQ(first.size(), 1U);
  EXPECT_TRUE(has(read_all(folder / "r/.mantissa.json"), *first.begin()));
  write(folder / "r/events.out.tfevents.1.another", "a user's");
  ASSERT_EQ(mantissa(folder, "train run.toml --out r --resume --quiet --set run.steps=3").code, 0);
  EXPECT_EQ(events().size(), 3U);
  ASSERT_EQ(mantissa(folder, "train run.toml --out r --overwrite --quiet").code, 0);
  EXPECT_EQ(events().size(), 2U);
  EXPECT_TRUE(events().contains("events.out.tfevents.1.another"));
}

/// The same folders, which cannot be written.
class ReadOnlyPlaces : public Places {
 protected:
  void SetUp() override {
    Places::SetUp();
    fs::create_directory(folder / "ro");
    for (const char* name : {"r", "m", "in", "run.toml"}) fs::rename(folder / name, folder / "ro" / name);
    // Permissions do not hold for root, who can mount instead.
    if (::geteuid() == 0 && run("help").code != 0)
      GTEST_SKIP() << "cannot mount: " << read_all(folder / "err");
    if (::geteuid() != 0) allow_writes(fs::perm_options::remove);
  }
  void TearDown() override { allow_writes(fs::perm_options::add); }
  void allow_writes(fs::perm_options how) const {
    for (const auto& entry : fs::recursive_directory_iterator(folder / "ro")) {
      if (entry.is_directory()) fs::permissions(entry.path(), fs::perms::owner_write, how);
    }
    fs::permissions(folder / "ro", fs::perms::owner_write, how);
  }
  Result run(const std::string& arguments) const {
    const std::string line = "cd ro && " MANTISSA_BINARY_DIR "/mantissa " + arguments;
    const std::string mount = "mount --bind ro ro && mount -o remount,ro,bind ro && ";
    return testing::shell(
        folder, ::geteuid() == 0 ? "unshare --mount sh -c '" + mount + line + "'" : "(" + line + ")");
  }
};

TEST_F(ReadOnlyPlaces, CommandsThatReadARunNeedNoLock) {
  for (const char* arguments :
       {"eval r --data in/text.txt --sequence-length 32", "inspect r",
        "generate r --prompt a --max-new-tokens 2", "diff r r", "convert r ../copy",
        "compare r r --out ../compared", "audit r --steps 1 --no-cures --quiet --out ../audited"}) {
    const Result r = run(arguments);
    EXPECT_EQ(r.code, 0) << arguments << "\n" << r.err;
  }
  const Result resumed = run("train run.toml --out r --resume --quiet");
  EXPECT_EQ(resumed.code, 2);
  EXPECT_TRUE(has(resumed.err, "r: cannot be written: ")) << resumed.err;
  EXPECT_TRUE(has(resumed.err, "copy the directory, and give the copy with --out")) << resumed.err;
}

TEST_F(ReadOnlyPlaces, OutputsAreCheckedBeforeTheWork) {
  for (const auto& [command, is_directory] : kWriters) {
    const Result r = run(std::string(command) + "new");
    EXPECT_EQ(r.code, 2) << command;
    EXPECT_TRUE(has(r.err, "new")) << r.err;
    EXPECT_TRUE(has(r.err, "Read-only file system") || has(r.err, "Permission denied")) << r.err;
    EXPECT_FALSE(has(r.err, "step 1")) << "it worked first: " << r.err;
  }
}

TEST_F(Places, ResponsesAreCheckedBeforeAProgramStarts) {
  write(folder / "bad", "{\"response\": \"a\"}\n{\"response\": 3}\n");
  for (const char* file : {"none", "bad"})
    EXPECT_TRUE(has(refusal("reward 'program:touch started; cat' --responses " + std::string(file)), file));
  EXPECT_FALSE(fs::exists(folder / "started"));
}

}  // namespace
}  // namespace mantissa
