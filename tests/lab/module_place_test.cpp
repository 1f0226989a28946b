#include "mantissa/lab/module_place.h"

#include <gtest/gtest.h>

namespace mantissa::lab {
namespace {

TEST(ModulePlace, SplitsTheLayerFromTheName) {
  const ModulePlace place("model.layers.3.mlp.down_proj");
  EXPECT_EQ(place.stack, "model.layers");
  EXPECT_EQ(place.layer, 3);
  EXPECT_EQ(place.module, "mlp.down_proj");
  EXPECT_EQ(place.row(), "model.layers.3");
  EXPECT_EQ(place.label(), "3");
  EXPECT_EQ(ModulePlace("h.0").module, "");
  EXPECT_EQ(ModulePlace("model.norm.weight").row(), "model.norm");
  EXPECT_EQ(ModulePlace("lm_head").label(), "lm_head");
  EXPECT_EQ(ModulePlace("a.99999999999999999999.b").layer, -1);
  EXPECT_EQ(ModulePlace("").row(), "");
}

TEST(ModulePlace, OrdersRowsAsTheModelDoes) {
  const std::vector<std::string> scopes{"embed",        "layers.0.mlp",  "layers.1.mlp",
                                        "head",         "layers.10.mlp", "layers.2.mlp",
                                        "layers.1.att", "other.0.mlp",   "embed.weight"};
  std::vector<std::string> rows;
  for (const ModulePlace& p : rows_in_order(scopes)) rows.push_back(p.row());
  EXPECT_EQ(rows, (std::vector<std::string>{"embed", "layers.0", "layers.1", "layers.2", "layers.10", "head",
                                            "other.0"}));
}

}  // namespace
}  // namespace mantissa::lab
