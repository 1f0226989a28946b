// The pages of docs/: links lead somewhere, and every command has a page.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "mantissa/app/cli/table.h"

namespace mantissa::cli {
namespace {

namespace fs = std::filesystem;

const fs::path kRoot = MANTISSA_SOURCE_DIR;

std::vector<fs::path> pages() {
  std::vector<fs::path> found = {kRoot / "README.md", kRoot / "CONTRIBUTING.md"};
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / "docs"))
    if (entry.path().extension() == ".md") found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

/// Returns the lines outside of fenced code, with their numbers from 1.
std::map<int, std::string> prose(const fs::path& page) {
  std::map<int, std::string> lines;
  std::ifstream in(page);
  std::string line;
  bool code = false;
  for (int number = 1; std::getline(in, line); ++number) {
    if (line.starts_with("```")) {
      code = !code;
    } else if (!code) {
      lines[number] = line;
    }
  }
  return lines;
}

/// Returns the anchor that GitHub gives a heading: lower case, spaces as hyphens, without other punctuation.
std::string anchor(const std::string& heading) {
  std::string made;
  for (const char c : heading) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || byte >= 0x80 || c == '-' || c == '_') {
      made += static_cast<char>(std::tolower(byte));
    } else if (c == ' ') {
      made += '-';
    }
  }
  return made;
}

std::set<std::string> anchors(const fs::path& page) {
  std::set<std::string> found;
  for (const auto& [number, line] : prose(page)) {
    const std::size_t depth = line.find_first_not_of('#');
    if (depth != std::string::npos && depth > 0 && line[depth] == ' ')
      found.insert(anchor(line.substr(depth + 1)));
  }
  return found;
}

TEST(Documentation, EveryRelativeLinkResolves) {
  const std::regex link(R"(\]\(([^)\s]+)\))");
  std::size_t links = 0;
  for (const fs::path& page : pages()) {
    for (const auto& [number, line] : prose(page)) {
      for (std::sregex_iterator i(line.begin(), line.end(), link), end; i != end; ++i) {
        const std::string target = (*i)[1];
        if (target.find("://") != std::string::npos) continue;
        ++links;
        const std::string file = target.substr(0, target.find('#'));
        const fs::path path = file.empty() ? page : page.parent_path() / file;
        const std::string where = page.string() + ":" + std::to_string(number) + ": " + target;
        ASSERT_TRUE(fs::exists(path)) << where;
        if (file.size() < target.size()) {
          EXPECT_TRUE(anchors(path).contains(target.substr(file.size() + 1))) << where;
        }
      }
    }
  }
  EXPECT_GT(links, 100U);
}

/// The names of pages in backticks (`docs/data.md`), in pages and in comments of the code.
TEST(Documentation, EveryNamedPageExists) {
  const std::regex name(R"(docs/[\w/-]+\.md)");
  std::vector<fs::path> files = pages();
  for (const char* folder : {"src", "tests", "tools", "examples", "bench", "fuzz"})
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder))
      if (entry.is_regular_file() && std::set<std::string>{".h", ".cpp", ".py", ".sh", ".toml"}.contains(
                                         entry.path().extension().string()))
        files.push_back(entry.path());
  for (const fs::path& file : files) {
    std::ifstream in(file);
    std::stringstream text;
    text << in.rdbuf();
    const std::string all = text.str();
    for (std::sregex_iterator i(all.begin(), all.end(), name), end; i != end; ++i) {
      const auto at = static_cast<std::size_t>(i->position());
      if (at > 0 && all[at - 1] == '/') continue;  // a page of another project
      EXPECT_TRUE(fs::exists(kRoot / i->str())) << file << ": " << i->str();
    }
  }
}

/// Returns the part of a file from the line `first` to the line `last`, without both.
std::vector<std::string> lines_between(const fs::path& path, const std::string& first,
                                       const std::string& last) {
  std::vector<std::string> found;
  std::ifstream in(path);
  std::string line;
  while (std::getline(in, line) && line != first) continue;
  while (std::getline(in, line) && line != last) found.push_back(line);
  return found;
}

TEST(Documentation, EveryMemberOfAnOpDefHasALineInTheRecipeForOps) {
  std::set<std::string> members, described;
  const std::regex function(R"(\(\*(\w+)\))"), member(R"((\w+)(?: = [^,;]*)?[,;])"), quoted("`(\\w+)`");
  for (std::string line : lines_between(kRoot / "src/mantissa/engine/graph/op.h", "struct OpDef {", "};")) {
    line = line.substr(0, line.find("//"));
    std::smatch match;
    if (std::regex_search(line, match, function)) {
      members.insert(match[1]);
      continue;
    }
    for (std::sregex_iterator i(line.begin(), line.end(), member), end; i != end; ++i)
      members.insert((*i)[1]);
  }
  for (const std::string& line : lines_between(kRoot / "docs/adding.md", "| member | what it says |", "")) {
    const std::string names = line.substr(0, line.find('|', 1));
    for (std::sregex_iterator i(names.begin(), names.end(), quoted), end; i != end; ++i)
      described.insert((*i)[1]);
  }
  EXPECT_GT(members.size(), 20U);
  EXPECT_EQ(members, described);
}

TEST(Documentation, FilesOfTheRecipesExist) {
  std::vector<std::string> files;
  for (const char* folder : {"src", "tests", "tools", "fuzz"}) {
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder))
      files.push_back(entry.path().generic_string());
  }
  std::ifstream in(kRoot / "docs/adding.md");
  std::stringstream page;
  page << in.rdbuf();
  const std::string text = page.str();
  const std::regex name(R"(`([a-z0-9_./-]+\.(?:h|cpp|py))`(, new)?)");
  int named = 0;
  for (std::sregex_iterator i(text.begin(), text.end(), name), end; i != end; ++i) {
    const std::string file = (*i)[1];
    const bool exists =
        std::ranges::any_of(files, [&](const std::string& path) { return path.ends_with("/" + file); });
    EXPECT_EQ(exists, !(*i)[2].matched) << file;
    ++named;
  }
  EXPECT_GT(named, 40);
}

TEST(Documentation, EveryCommandHasAPageThatTheIndexLinks) {
  std::ifstream in(kRoot / "docs/cli/README.md");
  std::stringstream text;
  text << in.rdbuf();
  const std::set<std::string> on_one_page = {"version", "completion", "manual"};
  for (const Command& command : commands()) {
    std::string page(command.name.substr(0, command.name.find(' ')));
    if (on_one_page.contains(page)) page = "help";
    page += ".md";
    EXPECT_TRUE(fs::exists(kRoot / "docs/cli" / page)) << command.name;
    EXPECT_NE(text.str().find("](" + page + ")"), std::string::npos) << command.name;
  }
}

}  // namespace
}  // namespace mantissa::cli
