#include "mantissa/setup/config/observed.h"

#include <gtest/gtest.h>

#include "mantissa/core/base/error.h"

namespace mantissa::config {
namespace {

TEST(Observed, ScopesAreSeparatedBySemicolons) {
  const std::vector<precision::Rule> rules = parse_observed("model.layers.0; *: op=softmax pass=backward");
  ASSERT_EQ(rules.size(), 2U);
  EXPECT_EQ(rules[0].match, "model.layers.0");
  EXPECT_EQ(rules[1].op, "softmax");
}

TEST(Observed, AListIsRefusedWithTheRightForm) {
  try {
    parse_observed("[\"model.layers.0\"]");
    FAIL() << "was accepted";
  } catch (const ConfigError& e) {
    EXPECT_EQ(e.message(),
              "log.observe: expected scopes separated by \";\", got a list, [\"model.layers.0\"]. Fix: "
              "log.observe = "
              "\"SCOPE; SCOPE\"");
  }
}

}  // namespace
}  // namespace mantissa::config
