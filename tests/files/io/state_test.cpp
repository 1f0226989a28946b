#include "mantissa/files/io/state.h"
#include "mantissa/core/disk/unfinished.h"
#include "mantissa/files/io/safetensors_stream.h"
#include "mantissa/files/io/state_header.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <cstring>
#include <limits>

#include "core/disk/temporary.h"
#include "mantissa/core/base/error.h"

namespace mantissa::io {
namespace {

using test::contents_of;
using test::message_of;
using test::put;

class State : public test::TemporaryFolder {
 protected:
  static StateHeader header(std::int64_t step) {
    StateHeader header;
    header.step = step;
    header.applied = step - 3;
    header.skipped = 3;
    header.tokens = step * 8192;
    header.data_position = step * 32;
    header.seed = std::numeric_limits<std::uint64_t>::max();
    header.rng = {{"rounding", 1ULL << 63}};
    header.scaler = precision::ScalerState{0x1.000001p16, 12, -1, 2};
    header.forward_overflows = 2;
    header.config_toml = "[run]\nname = \"é\"\n";
    header.model_config = "{}";
    header.policy = "params=f32";
    header.changes = {"step 50: --set optimizer.lr=1e-4"};
    return header;
  }
  std::vector<TensorToWrite> to_write() const {
    return {{"master.w", Dtype::f32, {2, 2}, std::as_bytes(std::span(master)), nullptr},
            {"moment1.w", Dtype::bf16, {2}, std::as_bytes(std::span(moment)), nullptr}};
  }
  void write(std::int64_t step, int keep = 10) const { write_state(folder, header(step), to_write(), keep); }
  std::vector<std::int64_t> steps() const {
    std::vector<std::int64_t> found;
    for (const FoundState& state : find_states(folder)) found.push_back(state.step);
    return found;
  }
  std::filesystem::path state(int step) const {
    char name[32];
    std::snprintf(name, sizeof name, "step-%08d", step);
    return folder / "state" / name;
  }
  std::string refused(int step) const {
    return message_of<FileError>([&] { StateReader reader(state(step)); });
  }
  static void flip(const std::filesystem::path& file, std::size_t at, int bit = 0) {
    std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
    stream.seekg(static_cast<std::streamoff>(at));
    const int byte = stream.get();
    stream.seekp(static_cast<std::streamoff>(at));
    stream.put(static_cast<char>(byte ^ (1 << bit)));
  }

  const std::vector<float> master = {1, -0.0F, std::numeric_limits<float>::denorm_min(), 4};
  const std::vector<std::uint16_t> moment = {0x3f80, 0xff80};
};

TEST_F(State, ReadsWhatItWrites) {
  write(100);
  EXPECT_EQ(steps(), std::vector<std::int64_t>{100});
  EXPECT_EQ(find_states(folder)[0].path, folder / "state" / "step-00000100");
  const StateReader read(state(100));
  EXPECT_EQ(read.header(), header(100));
  std::vector<float> f32(4);
  read.tensors().read_f32("master.w", f32);
  EXPECT_EQ(std::memcmp(f32.data(), master.data(), 16), 0);
  std::vector<std::uint16_t> bf16(2);
  read.tensors().read("moment1.w", std::as_writable_bytes(std::span(bf16)));
  EXPECT_EQ(bf16, moment);
}

TEST_F(State, KeepsTheAbsenceOfAScaler) {
  StateHeader plain = header(1);
  plain.scaler.reset();
  plain.forward_overflows = 0;
  plain.changes.clear();
  plain.rng.clear();
  write_state(folder, plain, {}, 1);
  EXPECT_EQ(StateReader(state(1)).header(), plain);
}

TEST_F(State, TheSameStateHasTheSameBytes) {
  write(1);
  const std::string json = contents_of(state(1) / "state.json"),
                    tensors = contents_of(state(1) / "state.safetensors");
  write(1);
  EXPECT_EQ(contents_of(state(1) / "state.json"), json);
  EXPECT_EQ(contents_of(state(1) / "state.safetensors"), tensors);
}

/// As processes that share a run do it: each opens the file of the first one.
TEST_F(State, TensorsOfSeveralProcessesMakeTheSameBytes) {
  write(1);
  const std::string json = contents_of(state(1) / "state.json"),
                    tensors = contents_of(state(1) / "state.safetensors");
  std::filesystem::remove_all(state(1));
  const std::vector<TensorToWrite> all = to_write();
  {
    SharedState shared(folder, header(1), all);
    std::vector<Hash64> written(all.size()), found(all.size());
    for (std::size_t i = all.size(); i-- > 0;) {
      disk::File file = disk::File::open_to_complete(shared.file());
      write_tensor(file, shared.offset(i), all[i], written[i]);
      file.close();
    }
    shared.read_back(
        [&](std::size_t tensor, std::span<const std::byte> piece) { found[tensor].update(piece); });
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(found[i].digest(), written[i].digest());
    EXPECT_TRUE(steps().empty());
    shared.commit(1);
  }
  EXPECT_EQ(contents_of(state(1) / "state.json"), json);
  EXPECT_EQ(contents_of(state(1) / "state.safetensors"), tensors);
}

TEST_F(State, ARunWithoutStatesHasNone) {
  EXPECT_TRUE(steps().empty());
  EXPECT_TRUE(find_states(folder / "none").empty());
}

TEST_F(State, KeepsTheNewestStates) {
  for (const int step : {1, 2, 3, 4}) write(step, 2);
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{3, 4}));
  write(5, 0);  // never fewer than the one just written
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{5}));
}

TEST_F(State, NeitherCountsNorRemovesStatesOfLaterSteps) {
  for (const int step : {10, 20, 30, 40}) write(step);
  write(15, 1);
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{15, 20, 30, 40}));
  remove_states_after(folder, 20);
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{15, 20}));
}

TEST_F(State, StepsAreOrderedByNumber) {
  for (const int step : {100'000'000, 99'999'999, 7}) write(step);
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{7, 99'999'999, 100'000'000}));
}

TEST_F(State, IgnoresPartialStatesAndRemovesThemWithTheNextWrite) {
  write(1);
  std::filesystem::copy(state(1), folder / "state" / "step-00000002.partial");
  disk::mark_directory(folder / "state" / "step-00000002.partial");  // as a killed process leaves it
  EXPECT_EQ(steps(), std::vector<std::int64_t>{1});
  write(3);
  EXPECT_FALSE(std::filesystem::exists(folder / "state" / "step-00000002.partial"));
}

TEST_F(State, IgnoresFoldersWithOtherNames) {
  for (const char* name : {"step-1", "step-000000001", "step-0000000x", "step-", "step--0000001",
                           "copy-00000001", "step-00000001 "}) {
    std::filesystem::create_directories(folder / "state" / name);
  }
  put(folder / "state" / "step-00000009", "a file");
  EXPECT_TRUE(steps().empty());
}

TEST_F(State, AFailedWriteKeepsTheOldStates) {
  write(1, 1);
  const std::vector<TensorToWrite> tensors = {
      {"w", Dtype::f32, {2}, {}, [](std::uint64_t, std::span<std::byte>) {
         throw std::runtime_error("stopped");
       }}};
  EXPECT_THROW(write_state(folder, header(2), tensors, 1), std::runtime_error);
  EXPECT_EQ(steps(), std::vector<std::int64_t>{1});
  EXPECT_NO_THROW(StateReader reader(state(1)));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / "state"), {}), 1);
}

TEST_F(State, DetectsEveryAlteredBitOfTheTensors) {
  write(1);
  const std::size_t size = contents_of(state(1) / "state.safetensors").size();
  ASSERT_GT(size, 100U);
  for (std::size_t at = 0; at < size; ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      flip(state(1) / "state.safetensors", at, bit);
      ASSERT_NE(refused(1).find("state.safetensors: this state is damaged: its checksum is"),
                std::string::npos)
          << "byte " << at << ", bit " << bit;
      flip(state(1) / "state.safetensors", at, bit);
    }
  }
  EXPECT_NO_THROW(StateReader reader(state(1)));
}

TEST_F(State, DetectsEveryAlteredBitOfTheHeaderThatMatters) {
  write(1);
  const std::string text = contents_of(state(1) / "state.json");
  std::size_t found = 0, blanks = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    blanks += text[at] == ' ' || text[at] == '\n' ? 1 : 0;
    for (int bit = 0; bit < 8; ++bit) {
      flip(state(1) / "state.json", at, bit);
      try {
        const StateReader reader(state(1));
        EXPECT_EQ(reader.header(), header(1)) << "byte " << at;  // one blank for another: the same header
      } catch (const FileError& error) {
        EXPECT_NE(std::string(error.what()).find("state.json"), std::string::npos) << error.what();
        ++found;
      }
      flip(state(1) / "state.json", at, bit);
    }
  }
  EXPECT_GE(found, 8 * (text.size() - blanks));
}

TEST_F(State, RejectsATruncatedFileByName) {
  write(1);
  std::filesystem::resize_file(state(1) / "state.safetensors", 20);
  EXPECT_NE(refused(1).find("state.safetensors: this state is damaged: it has 20 bytes"), std::string::npos);
  std::filesystem::remove(state(1) / "state.safetensors");
  EXPECT_NE(refused(1).find("state.safetensors: there is no such file"), std::string::npos);
  std::filesystem::resize_file(state(1) / "state.json", 20);
  EXPECT_NE(refused(1).find("state.json: is truncated"), std::string::npos);
  std::filesystem::remove(state(1) / "state.json");
  EXPECT_NE(refused(1).find("state.json: there is no such file"), std::string::npos);
}

TEST_F(State, SuggestsTheNewestIntactStateBeforeADamagedOne) {
  for (const int step : {10, 20, 30, 40}) write(step);
  flip(state(30) / "state.safetensors", 50);
  EXPECT_NE(refused(30).find("; an earlier state is intact: " + state(20).string() + ". Fix: --resume=20"),
            std::string::npos)
      << refused(30);
  flip(state(20) / "state.safetensors", 50);
  EXPECT_NE(refused(30).find("--resume=10"), std::string::npos);
  flip(state(10) / "state.json", 50);
  EXPECT_NE(refused(30).find("no earlier state is intact: train again with --overwrite"), std::string::npos);
  EXPECT_NO_THROW(StateReader reader(state(40)));
}

// The next read may succeed, so that the state must not be given up.
TEST_F(State, AReadErrorIsNotCalledDamage) {
  write(1);
  std::filesystem::remove(state(1) / "state.json");
  std::filesystem::create_symlink("state.json", state(1) / "state.json");  // a loop
  EXPECT_NE(refused(1).find("state.json: cannot be read: Too many levels of symbolic links"),
            std::string::npos);
  EXPECT_EQ(refused(1).find("--overwrite"), std::string::npos) << refused(1);
}

TEST_F(State, RejectsOtherVersionsAndOtherFiles) {
  write(1);
  std::string text = contents_of(state(1) / "state.json");
  const std::size_t at = text.find("\"version\": 1");
  ASSERT_NE(at, std::string::npos);
  text[at + 11] = '2';
  put(state(1) / "state.json", text);
  EXPECT_NE(refused(1).find("has version 2"), std::string::npos);
  for (const char* other : {"{}", "[]", "1", R"({"format":"x"})", R"({"format":"mantissa.state"})"}) {
    put(state(1) / "state.json", other);
    EXPECT_NE(refused(1).find("state.json: "), std::string::npos) << other;
  }
}

TEST_F(State, CountersAreWholeNumbers) {
  write(1);
  nlohmann::json json = nlohmann::json::parse(contents_of(state(1) / "state.json"));
  json.erase("xxh64");
  for (const char* key : {"step", "applied", "skipped", "tokens", "data_position", "seed", "stage_applied"}) {
    for (const nlohmann::json& value : {nlohmann::json(1e300), nlohmann::json(1.5), nlohmann::json("1")}) {
      nlohmann::json other = json;
      other[key] = value;
      put(state(1) / "state.json", sealed(other));
      EXPECT_NE(refused(1).find("an entry is missing or of the wrong type"), std::string::npos)
          << key << value;
    }
  }
  json["rng"] = {{"sampler", 1e300}};
  put(state(1) / "state.json", sealed(json));
  EXPECT_NE(refused(1).find("an entry is missing or of the wrong type"), std::string::npos);
}

TEST_F(State, RejectsTextThatIsNotUtf8AndLeavesNoState) {
  StateHeader bad = header(1);
  bad.policy = "\xff";
  EXPECT_THROW(write_state(folder, bad, {}, 1), ConfigError);
  EXPECT_TRUE(steps().empty());
}

}  // namespace
}  // namespace mantissa::io
