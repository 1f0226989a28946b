#include "mantissa/files/io/json.h"

#include <set>
#include <string>
#include <vector>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/printable.h"
#include "mantissa/core/disk/file.h"

namespace mantissa::io {
namespace {

constexpr int kDeepest = 64;
constexpr std::uint64_t kLargestFile = 100'000'000;

}  // namespace

nlohmann::json parse_json(std::string_view text, const std::filesystem::path& file) {
  using Event = nlohmann::json::parse_event_t;
  std::vector<std::set<std::string>> keys;  // of the open objects
  const auto check = [&](int depth, Event event, nlohmann::json& parsed) {
    if (depth > kDeepest)
      throw FileError("{}: nests deeper than {} levels; write the file again", file.string(), kDeepest);
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key && !keys.back().insert(parsed.get<std::string>()).second) {
      throw FileError("{}: has the key {} twice; remove one", file.string(),
                      name_in_quotes(parsed.get<std::string>()));
    }
    return true;
  };
  if (const std::size_t zero = text.find('\0');
      zero != std::string_view::npos) {  // the parser would stop there
    throw FileError("{}: is not JSON from byte {} on; fix the file or write it again", file.string(), zero);
  }
  try {
    return nlohmann::json::parse(text.begin(), text.end(), check);
  } catch (const nlohmann::json::parse_error& error) {
    if (text.empty()) throw FileError("{}: is empty; write it again", file.string());
    if (error.byte > text.size())
      throw FileError("{}: is truncated: its JSON does not end with its {} bytes; write it again",
                      file.string(), text.size());
    throw FileError("{}: is not JSON from byte {} on; fix the file or write it again", file.string(),
                    error.byte);
  } catch (const nlohmann::json::exception&) {
    throw FileError("{}: has a number out of range; fix the file or write it again", file.string());
  }
}

nlohmann::json read_json_file(const std::filesystem::path& file) {
  return parse_json(disk::read_text_file(file, kLargestFile), file);
}

}  // namespace mantissa::io
