// The tables of docs/ that are generated: options and keys in docs/cli from the declarations of commands and
// keys, the kinds of data files and the rules of rewards from theirs.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "mantissa/app/api/mantissa.h"
#include "mantissa/app/cli/option_groups.h"
#include "mantissa/app/cli/table.h"
#include "mantissa/core/base/words.h"
#include "mantissa/engine/model/family.h"
#include "mantissa/text/reward/rules.h"
#include "mantissa/text/rows/file_kinds.h"

namespace mantissa::cli::page_tables {
namespace {

namespace fs = std::filesystem;

using Row = std::vector<std::string>;

constexpr std::string_view kEnd = "<!-- end of the table -->\n";

/// Returns a table in Markdown, without columns that are empty.
std::string table(const Row& heads, const std::vector<Row>& rows) {
  std::string text;
  for (std::size_t r = 0; r < rows.size() + 2; ++r) {
    std::string line = "|";
    for (std::size_t c = 0; c < heads.size(); ++c) {
      if (std::ranges::all_of(rows, [&](const Row& row) { return row[c].empty(); })) continue;
      const std::string& cell = r == 0 ? heads[c] : r == 1 ? "---" : rows[r - 2][c];
      line += cell.empty() ? " |" : fmt::format(" {} |", cell);
    }
    text += line + "\n";
  }
  return text;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '|' ? "\\|" : std::string(1, c);
  return out;
}

std::string code(std::string_view text) {
  return text.empty() ? "" : fmt::format("`{}`", escaped(text));
}

std::string codes(const std::vector<std::string>& words) {
  std::vector<std::string> all;
  for (const std::string& word : words) all.push_back(code(word));
  return fmt::format("{}", fmt::join(all, ", "));
}

/// Returns the options that docs/cli/README.md describes for all commands.
std::vector<Option> common_options() {
  return Options{kPrecision, kRules, kAdapter, kSet, kTarget, kHardware, kResults, kGeneral};
}

bool same(const Option& a, const Option& b) {
  return a.name == b.name && a.argument == b.argument && a.description == b.description;
}

/// Returns the table of a command's own options, and the names of the others.
std::string options_text(const Command& command) {
  std::vector<Row> own;
  std::vector<std::string> others;
  const std::vector<Option> common = common_options();
  for (const Option* o : options_of(command)) {
    if (std::ranges::any_of(common, [&](const Option& option) { return same(option, *o); })) {
      if (std::ranges::none_of(kGeneral, [&](const Option& option) { return same(option, *o); }))
        others.emplace_back(o->name);
    } else {
      own.push_back({code(written(*o)), code(o->fallback), escaped(o->description)});
    }
  }
  const std::string text = own.empty() ? "" : table({"option", "default", "meaning"}, own) + "\n";
  return text + fmt::format("[{}](README.md#options-of-several-commands): {}.\n",
                            own.empty() ? "Options" : "Other options", codes(others));
}

/// Returns the table of the options that several commands share.
std::string common_options_text() {
  constexpr std::size_t kFew = 5;
  std::vector<Row> rows;
  for (const Option& common : common_options()) {
    std::vector<std::string> takers, others;
    for (const Command& command : commands()) {
      const Option* option = find_option(command, common.name);
      (option != nullptr && same(*option, common) ? takers : others).emplace_back(command.name);
    }
    const std::string who = others.empty()          ? "all"
                            : others.size() <= kFew ? "all but " + codes(others)
                                                    : codes(takers);
    rows.push_back({code(written(common)), code(common.fallback), who, escaped(common.description)});
  }
  return table({"option", "default", "commands", "meaning"}, rows);
}

/// Returns the keys of a section, without the fields of config.json, which docs/models.md lists.
std::string keys_text(std::string_view section) {
  std::vector<Row> rows;
  for (const api::ConfigKeyHelp& short_help : api::config_keys()) {
    if (short_help.section != section) continue;
    if (section == "model" && short_help.key != "path" && short_help.key != "config") continue;
    const api::ConfigKeyHelp key = api::config_key_help(short_help.name());
    std::string fallback = code(key.default_value);
    for (const auto& [objective, value] : key.defaults)
      fallback += fmt::format("; {}: {}", objective, code(value));
    const bool words = !key.values.empty() &&
                       (key.type == "string" || key.type == "policy field" || key.type.starts_with("path"));
    std::string values = words ? key.values : key.type;
    if (!words && !key.values.empty())
      values.insert(std::min(values.find(','), values.size()), ", " + key.values);
    rows.push_back({code(key.name()), fallback, escaped(key.description), escaped(values)});
  }
  return table({"key", "default", "meaning", "values"}, rows);
}

std::string file_kinds_text() {
  std::vector<Row> rows;
  for (const text::FileKind& kind : text::file_kinds()) {
    std::vector<std::string> endings;
    for (const std::string_view ending : split_words(kind.endings, " ")) endings.push_back(code(ending));
    rows.push_back({code(kind.name), fmt::format("{}", fmt::join(endings, " ")), std::string(kind.contents)});
  }
  return table({"`format`", "chosen by `auto` for", "a file contains"}, rows);
}

std::string rules_of_rewards_text() {
  std::vector<Row> rows;
  for (const reward::RuleKind& kind : reward::rule_kinds())
    rows.push_back(
        {code(kind.written()), std::string(kind.reward), std::string(kind.parts), std::string(kind.field)});
  return table({"rule", "reward", "parts", "field of the row"}, rows);
}

std::string families_text() {
  std::vector<Row> rows;
  for (const model::Family* family : model::all_families())
    rows.push_back({code(family->model_type), code(family->architecture), std::string(family->summary)});
  return table({"`model_type`", "class in transformers", "what distinguishes it"}, rows);
}

/// Returns "Llama, Mistral and GPT-2".
std::string titles_of_families() {
  std::string text;
  for (const model::Family* family : model::all_families()) {
    const bool last = family == model::all_families().back();
    text += fmt::format("{}{}", text.empty() ? "" : last ? " and " : ", ", family->title);
  }
  return text;
}

/// Returns the generated texts, each with the mark that begins it.
std::map<std::string, std::string> generated() {
  std::map<std::string, std::string> all;
  for (const Command& command : commands()) {
    if (!command.options.empty() || !command.groups.empty())
      all[fmt::format("<!-- options of mantissa {} -->\n", command.name)] = options_text(command);
  }
  all["<!-- options of several commands -->\n"] = common_options_text();
  all["<!-- kinds of data files -->\n"] = file_kinds_text();
  all["<!-- families of models -->\n"] = families_text();
  all["<!-- rules of rewards -->\n"] = rules_of_rewards_text();
  for (const api::ConfigKeyHelp& key : api::config_keys())
    all.try_emplace(fmt::format("<!-- keys of [{}] -->\n", key.section), keys_text(key.section));
  return all;
}

std::string read(const fs::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

/// Returns the pages with generated texts: those of docs/ and the README.
std::vector<fs::path> pages() {
  std::vector<fs::path> all = {fs::path(MANTISSA_SOURCE_DIR) / "README.md"};
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(MANTISSA_SOURCE_DIR) / "docs")) {
    if (entry.path().extension() == ".md") all.push_back(entry.path());
  }
  return all;
}

/// Expects the page to have the text, or writes it.
void settle(const fs::path& page, const std::string& before, const std::string& after) {
  if (std::getenv("MANTISSA_WRITE_PAGES") != nullptr) {
    if (after != before) std::ofstream(page) << after;
    return;
  }
  EXPECT_EQ(before, after) << page
                           << " differs from the declarations. To write the tables, run:\n"
                              "MANTISSA_WRITE_PAGES=1 ./dev test --room cli -- -R PageTables";
}

TEST(PageTables, TheReadmeAndTheLimitsNameEveryFamily) {
  constexpr std::string_view kMark = "<!-- families -->", kUntil = "<!-- end -->";
  int found = 0;
  for (const fs::path& page : pages()) {
    const std::string before = read(page);
    const std::size_t begin = before.find(kMark);
    if (begin == std::string::npos) continue;
    ++found;
    const std::size_t from = begin + kMark.size(), end = before.find(kUntil, from);
    ASSERT_NE(end, std::string::npos) << page;
    settle(page, before, std::string(before).replace(from, end - from, titles_of_families()));
  }
  EXPECT_EQ(found, 2);
}

TEST(PageTables, AreGeneratedFromTheDeclarations) {
  const std::map<std::string, std::string> tables = generated();
  std::map<std::string, int> found;
  for (const fs::path& page : pages()) {
    const std::string before = read(page);
    std::string after = before;
    for (const auto& [mark, text] : tables) {
      const std::size_t begin = after.find(mark);
      if (begin == std::string::npos) continue;
      ++found[mark];
      const std::size_t from = begin + mark.size(), end = after.find(kEnd, from);
      ASSERT_NE(end, std::string::npos) << page << ": " << mark;
      after.replace(from, end - from, "\n" + text + "\n");
    }
    settle(page, before, after);
  }
  for (const auto& [mark, text] : tables) EXPECT_EQ(found[mark], 1) << mark;
}

}  // namespace
}  // namespace mantissa::cli::page_tables
