// Files in which bits changed: an error, or the same weights.
#include <gtest/gtest.h>

#include "faults/campaign.h"

namespace mantissa::faults {
namespace {

/// A command that reads a file.
struct Reader {
  const char* name;
  const char* command;  // prepares the folder
  const char* file;     // is damaged; `*` stands for the newest state
  const char* run;
  bool checksummed;  // a damaged file cannot give other results
};
constexpr Reader kReaders[] = {
    {"weights_of_a_state", "resume", "r/state/*/state.safetensors", "train run.toml --out r --resume", true},
    {"header_of_a_state", "resume", "r/state/*/state.json", "train run.toml --out r --resume", true},
    {"metrics_of_a_run", "resume", "r/metrics.jsonl", "train run.toml --out r --resume", false},
    {"health_of_a_run", "resume", "r/health.jsonl", "train run.toml --out r --resume", false},
    {"start_of_a_run", "resume", "r/start.safetensors", "train run.toml --out r --resume", false},
    {"weights_of_a_model", "eval", "m/model.safetensors", "eval m --data text.txt --sequence-length 32",
     false},
    {"config_of_a_model", "eval", "m/config.json", "eval m --data text.txt --sequence-length 32", false},
    {"tokenizer_of_a_model", "eval", "m/tokenizer.json", "eval m --data text.txt --sequence-length 32",
     false},
    {"template_of_a_model", "chat", "m/chat_template.jinja", "chat m --max-new-tokens 4 < lines", false},
    {"gguf", "convert_from_gguf", "c.gguf", "convert c.gguf g", false},
    {"adapter", "merge", "a/adapter/adapter_model.safetensors", "merge m a x", false},
    {"config_of_a_run", "train", "run.toml", "train run.toml --out r", false}};

class DamagedFile : public ::testing::TestWithParam<std::size_t> {
 protected:
  void SetUp() override { ASSERT_NO_FATAL_FAILURE(prepared.prepare()); }

  fs::path damaged() const {
    std::string file = reader.file;
    const std::size_t star = file.find('*');
    if (star != std::string::npos) {
      std::string newest;
      for (const auto& entry : fs::directory_iterator(prepared.machine.work() / file.substr(0, star))) {
        const std::string name = entry.path().filename().string();
        if (!name.ends_with(".partial")) newest = std::max(newest, name);
      }
      file.replace(star, 1, newest);
    }
    return prepared.machine.work() / file;
  }

  void check(double seconds) const {
    Campaign campaign(seconds, 3);
    while (campaign.goes_on()) {
      prepared.restore();
      const fs::path file = damaged();
      std::string bytes = read_all(file);
      ASSERT_FALSE(bytes.empty()) << file;
      std::string story;
      // Headers are short, so that half of the changes go to the first bytes.
      const auto range = static_cast<std::int64_t>(
          campaign.below(2) == 0 ? std::min<std::size_t>(bytes.size(), 400) : bytes.size());
      for (std::int64_t i = 1 + campaign.below(2); i > 0; --i) {
        const auto at = static_cast<std::size_t>(campaign.below(range));
        const auto bit = campaign.below(8);
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << bit));
        story += fmt::format("bit {} of byte {}, ", bit, at);
      }
      if (campaign.below(8) == 0) {
        bytes.resize(static_cast<std::size_t>(campaign.below(range)));
        story += fmt::format("cut to {} bytes, ", bytes.size());
      }
      std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
      const Ran ran = prepared.machine.run(with_options(reader.run));
      std::string wrong = complaint(ran);
      if (wrong.empty() && reader.checksummed && ran.code == 0) {
        wrong = difference(prepared.expected(),
                           results(snapshot(prepared.machine.work()), prepared.command().outputs));
      }
      if (!wrong.empty()) ADD_FAILURE() << reader.file << ": " << story << wrong << "; " << ran.err;
    }
  }

  const Reader& reader = kReaders[GetParam()];
  Prepared prepared{command_named(reader.command)};
};

std::string reader_name(const ::testing::TestParamInfo<std::size_t>& p) {
  return kReaders[p.param].name;
}

TEST_P(DamagedFile, IsAnErrorOrGivesTheSameWeights) {
  check(0.5);
}
INSTANTIATE_TEST_SUITE_P(Files, DamagedFile, ::testing::Range<std::size_t>(0, std::size(kReaders)),
                         reader_name);
using SlowDamagedFile = DamagedFile;
TEST_P(SlowDamagedFile, IsAnErrorOrGivesTheSameWeightsForLong) {
  check(120);
}
INSTANTIATE_TEST_SUITE_P(Slow, SlowDamagedFile, ::testing::Range<std::size_t>(0, std::size(kReaders)),
                         reader_name);

}  // namespace
}  // namespace mantissa::faults
