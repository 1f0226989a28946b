#include "mantissa/text/tokenizer/post_processors.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace mantissa::tokenizer {

PostProcessor::PostProcessor(const JsonView& json, std::int64_t vocabulary) {
  read(json, vocabulary);
}

void PostProcessor::read(const JsonView& json, std::int64_t vocabulary) {
  const std::string type = json.at("type").text();
  const auto id_of = [&](const JsonView& value) {
    return static_cast<std::int32_t>(value.integer(vocabulary - 1));
  };
  if (type == "ByteLevel") return;  // moves offsets only
  if (type == "Sequence") {
    for (const JsonView& step : json.at("processors").items()) read(step, vocabulary);
    return;
  }
  if (pieces_.size() != 1) json.fail("more than one post-processor adds ids", "keep one of them");
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    const auto end = [&](const char* key) {
      const std::vector<JsonView> pair = json.at(key).items();
      if (pair.size() != 2) json.at(key).fail("expected a token and its id");
      return Piece{false, {id_of(pair[1])}};
    };
    pieces_ = {end("cls"), {true, {}}, end("sep")};
    return;
  }
  if (type != "TemplateProcessing")
    json.at("type").fail(fmt::format("the post-processor \"{}\" is not supported", type),
                         "use another tokenizer");
  constexpr std::size_t kMost = 1 << 16;
  std::size_t added = 0;
  pieces_.clear();
  for (const JsonView& piece : json.at("single").items()) {
    if (const std::optional<JsonView> sequence = piece.find("Sequence")) {
      if (sequence->at("id").text() != "A")
        sequence->at("id").fail("a template for one text has a second text");
      pieces_.push_back({true, {}});
      continue;
    }
    const JsonView name = piece.at("SpecialToken").at("id");
    Piece special{false, {}};
    for (const JsonView& id : json.at("special_tokens").at(name.text()).at("ids").items())
      special.ids.push_back(id_of(id));
    added += special.ids.size();
    if (added > kMost) json.at("single").fail(fmt::format("the template adds more than {} ids", kMost));
    pieces_.push_back(std::move(special));
  }
}

std::vector<std::int32_t> PostProcessor::apply(const std::vector<std::int32_t>& ids) const {
  std::vector<std::int32_t> result;
  for (const Piece& piece : pieces_) {
    const std::vector<std::int32_t>& source = piece.text ? ids : piece.ids;
    result.insert(result.end(), source.begin(), source.end());
  }
  return result;
}

}  // namespace mantissa::tokenizer
