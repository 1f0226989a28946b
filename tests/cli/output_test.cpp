// What the program writes: no output destroys another file, lost output is an error, and a signal ends a
// command with a message.
#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <vector>

#include "cli/run_program.h"
#include "mantissa/io/safetensors.h"

namespace mantissa {
namespace {

using testing::mantissa;
using testing::read_all;
using testing::Result;
using testing::TemporaryFolder;
using testing::tiny_config;
using testing::write;

TEST(Output, NoOutputReplacesAnInputOrAnotherFileUnasked) {
  const TemporaryFolder folder;
  write(folder / "run.toml", tiny_config(2, "32-true"));
  ASSERT_EQ(mantissa(folder, "train run.toml --out r --quiet").code, 0);
  const std::vector<std::int32_t> ids = {72, 101, 108, 108, 111};
  io::write_safetensors(folder / "ids",
                        std::vector{io::TensorToWrite{
                            "input_ids", io::Dtype::i32, {1, 5}, std::as_bytes(std::span(ids)), nullptr}});
  std::filesystem::create_symlink("ids", folder / "link");
  std::filesystem::create_hard_link(folder / "r/model/model.safetensors", folder / "hard");
  write(folder / "mine", "a file of the user");
  write(folder / "ds.json", "{'bf16': {'enabled': True}}");
  const std::string weights = read_all(folder / "r/model/model.safetensors"),
                    tokens = read_all(folder / "ids");
  const std::pair<const char*, const char*> cases[] = {
      {"trace r --tokens ids --overwrite --out ids", "ids: is the input itself"},
      {"trace r --tokens ids --overwrite --out link", "link: is the input itself"},
      {"trace r --tokens link --overwrite --out r/../ids", "is the input itself"},
      {"trace r --tokens ids --overwrite --out r/model/model.safetensors", "is the input itself"},
      {"trace r --tokens ids --overwrite --out r/model/config.json", "is the input itself"},
      {"trace r --tokens ids --overwrite --out hard", "is the input itself"},
      {"trace r --tokens ids --overwrite --out ds.json --deepspeed ds.json", "is the input itself"},
      {"trace r --tokens ids --out mine", "mine: exists already"},
      {"trace r --tokens ids --out r", "r: is a directory"},
      {"data kk --out mine", "mine: exists already"},
      {"data kk --out r --overwrite", "r: is a directory"},
      {"data kk --overwrite", "--out"}};
  for (const auto& [arguments, expected] : cases) {
    const Result r = mantissa(folder, arguments);
    EXPECT_EQ(r.code, 2) << arguments;
    EXPECT_NE(r.err.find(expected), std::string::npos) << arguments << "\n" << r.err;
    EXPECT_EQ(r.out, "") << arguments;
  }
  EXPECT_EQ(read_all(folder / "r/model/model.safetensors"), weights);
  EXPECT_EQ(read_all(folder / "ids"), tokens);
  EXPECT_EQ(read_all(folder / "mine"), "a file of the user");
  // A trace replaces an earlier one. An empty file and a device hold nothing to lose.
  write(folder / "empty", "");
  for (const char* arguments :
       {"trace r --tokens ids --out t", "trace r --tokens ids --out t --grads",
        "trace r --tokens ids --out empty", "trace r --tokens ids --out r/model/t",
        "trace r --tokens ids --out r/model/t", "trace r --tokens ids --out mine --overwrite",
        "data kk --count 1 --out mine --overwrite", "data kk --count 1 --out new",
        "data kk --count 1 --out /dev/null"}) {
    const Result r = mantissa(folder, arguments);
    EXPECT_EQ(r.code, 0) << arguments << "\n" << r.err;
  }
  EXPECT_EQ(read_all(folder / "new"), mantissa(folder, "data kk --count 1").out);
}

}  // namespace
}  // namespace mantissa
