// Every family has its row of facts, its golden models, its fuzz input and its row in the documentation.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "engine/model/tiny_families.h"
#include "mantissa/engine/model/family.h"

namespace mantissa::model::family_facts_test {
namespace {

using mantissa::testing::family_facts;
using mantissa::testing::FamilyFacts;
using nlohmann::json;

const std::filesystem::path kSource = MANTISSA_SOURCE_DIR;

/// Returns the configs of the family in the JSON files below a folder of the source tree.
std::vector<json> configs_of(std::string_view model_type, const char* folder) {
  std::vector<json> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kSource / folder)) {
    if (entry.path().extension() != ".json") continue;
    std::ifstream in(entry.path());
    const json config = json::parse(in, nullptr, false);
    if (config.is_object() && config.contains("model_type") && config["model_type"] == model_type)
      found.push_back(config);
  }
  return found;
}

TEST(FamilyFacts, HaveARowForEveryFamily) {
  for (const Family* family : all_families()) {
    const auto row = std::ranges::find_if(
        family_facts(), [&](const FamilyFacts& f) { return f.model_type == family->model_type; });
    if (row == family_facts().end()) {
      ADD_FAILURE() << "the family \"" << family->model_type
                    << "\" has no row. Fix: add one to tests/engine/model/family_facts.h";
    } else {
      EXPECT_FALSE(row->tiny.empty())
          << "the row of \"" << family->model_type
          << "\" has no tiny model. Fix: add one in tests/engine/model/family_facts.h";
    }
  }
  for (const FamilyFacts& row : family_facts()) {
    EXPECT_NE(find_family(row.model_type), nullptr) << "tests/engine/model/family_facts.h has a row of \""
                                                    << row.model_type << "\", which is not a family";
  }
}

TEST(FamilyFacts, HaveGoldenModelsTiedAndUntied) {
  for (const Family* family : all_families()) {
    std::set<bool> found;
    for (const json& config : configs_of(family->model_type, "tests/golden/families"))
      found.insert(parse_model_config(config, "config.json").tie_word_embeddings);
    for (const bool tied : {false, true}) {
      EXPECT_TRUE(found.contains(tied))
          << "tests/golden/families has no " << (tied ? "tied" : "untied") << " model of the family \""
          << family->model_type
          << "\". Fix: add a case to tools/golden_families.py, and run it with --only CASE";
    }
  }
}

TEST(FamilyFacts, HaveAFuzzInput) {
  for (const Family* family : all_families()) {
    EXPECT_FALSE(configs_of(family->model_type, "fuzz/corpus/model_config").empty())
        << "no file of fuzz/corpus/model_config is a config of the family \"" << family->model_type
        << "\". Fix: add one";
  }
}

TEST(FamilyFacts, AreDocumented) {
  std::ifstream in(kSource / "docs/models.md");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  for (const Family* family : all_families()) {
    EXPECT_NE(text.find(fmt::format("| `{}` | `{}` |", family->model_type, family->architecture)),
              std::string::npos)
        << "docs/models.md has no row for the family \"" << family->model_type << "\". Fix: add one";
  }
}

}  // namespace
}  // namespace mantissa::model::family_facts_test
