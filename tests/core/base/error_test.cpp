#include "mantissa/core/base/error_text.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace mantissa::error_test {
namespace {

TEST(Error, FormatsItsArguments) {
  const std::string where = "run.toml:3";
  EXPECT_EQ(ConfigError("{}: expected {}, got {:.1f}", where, 3, 2.5).message(),
            "run.toml:3: expected 3, got 2.5");
  EXPECT_STREQ(InternalError("no op {}", "matmul").what(), "no op matmul");
  EXPECT_EQ(ProgramFailed("{} of {}", 1, 2).message(), "1 of 2");
}

TEST(Error, WithoutArgumentsKeepsItsTextAsItIs) {
  const std::string text = "write {\"query\": \"…\"}";
  EXPECT_EQ(FileError("write {\"query\": \"…\"}").message(), text);
  EXPECT_EQ(FileError(text).message(), text);
  EXPECT_STREQ(InternalError("{}").what(), "{}");
}

TEST(Error, WithCuresKeepsItsTextAsItIs) {
  const std::vector<Cure> cures = {{{"--resume"}}};
  EXPECT_EQ(RunStopped("{}", cures).message(), "{}");
  EXPECT_EQ(RunStopped("{}", cures).cures().size(), 1U);
}

}  // namespace
}  // namespace mantissa::error_test
