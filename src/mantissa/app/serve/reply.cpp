#include "mantissa/app/serve/reply.h"

#include <algorithm>
#include <utility>

namespace mantissa::serve {
namespace {

/// Returns the number of characters that begin in `bytes`.
std::int64_t characters_in(const std::string& bytes) {
  return std::ranges::count_if(bytes,
                               [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
}

Json or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

}  // namespace

std::string line_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Reply::Reply(const TextRequest& request, const std::vector<EncodedPrompt>& prompts, const Language& language,
             ReplyHead head)
    : request_(request), language_(language), head_(std::move(head)) {
  for (const EncodedPrompt& prompt : prompts) {
    prompt_tokens_ += std::ssize(prompt.ids);
    for (std::int64_t i = 0; i < request.n; ++i) {
      Choice choice;
      choice.prompt = &prompt;
      choice.previous = prompt.ids.empty() ? -1 : prompt.ids.back();
      if (request.echo) {
        choice.text = prompt.text;
        if (request.log_probs && !prompt.ids.empty()) {
          choice.previous = -1;
          score(choice, {.id = prompt.ids.front(), .most_likely = {}, .of_prompt = true}, true);
        }
      }
      choices_.push_back(std::move(choice));
    }
  }
}

void Reply::score(Choice& choice, const rollout::LiveToken& token, bool first) {
  if (request_.log_probs) {
    choice.scored.push_back({token, choice.previous, first, choice.characters});
    choice.characters += characters_in(language_.bytes_of(choice.previous, token.id));
  }
  choice.previous = token.id;
}

std::vector<Json> Reply::take(const Event& event) {
  Choice& choice = choices_.at(event.choice);
  if (event.error) std::rethrow_exception(event.error);
  if (!event.token) {
    if (choice.ended) return {};
    choice.ended = true;
    ++ended_;
    if (!choice.finish.empty()) return {};
    choice.finish = "length";  // no token was asked for
    return {part(event.choice, "", choice.finish)};
  }
  score(choice, *event.token, false);
  if (event.token->of_prompt) return {};
  ++choice.made;
  choice.text += event.text;
  choice.finish = event.finish;
  if (event.text.empty() && event.finish.empty() && !request_.log_probs) return {};
  return {part(event.choice, event.text, event.finish)};
}

std::vector<Json> Reply::begin() {
  std::vector<Json> parts;
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    if (request_.chat) {
      Json first = object("chat.completion", "chat.completion.chunk", true);
      first["choices"] = Json::array({{{"index", i},
                                       {"delta", {{"role", "assistant"}, {"content", ""}}},
                                       {"logprobs", nullptr},
                                       {"finish_reason", nullptr}}});
      parts.push_back(std::move(first));
    } else if (request_.echo && !request_.log_probs) {
      parts.push_back(part(i, choices_[i].text, ""));
    }
  }
  return parts;
}

Json Reply::object(const char* whole, const char* part, bool is_part) const {
  Json out = {{"id", head_.id},
              {"object", is_part ? part : whole},
              {"created", head_.created},
              {"model", head_.model},
              {"choices", Json::array()}};
  if (is_part && request_.include_usage) out["usage"] = nullptr;
  return out;
}

Json Reply::part(std::size_t index, const std::string& text, const std::string& finish) {
  Choice& choice = choices_[index];
  Json out = request_.chat ? object("chat.completion", "chat.completion.chunk", true)
                           : object("text_completion", "text_completion", true);
  Json log_probs;
  std::string shown = text;
  if (request_.log_probs) {
    log_probs = request_.chat ? chat_log_probs_of(choice, choice.sent) : log_probs_of(choice, choice.sent);
    // The prompt comes with the log-probabilities of its tokens, which are known at the first new token.
    if (request_.echo && choice.sent == 0) shown = choice.prompt->text + text;
    choice.sent = choice.scored.size();
  }
  Json of = {{"index", index}};
  if (request_.chat) {
    of["delta"] = text.empty() ? Json::object() : Json{{"content", text}};
  } else {
    of["text"] = shown;
  }
  of["logprobs"] = std::move(log_probs);
  of["finish_reason"] = or_null(finish);
  out["choices"].push_back(std::move(of));
  return out;
}

Json Reply::usage() const {
  std::int64_t made = 0;
  for (const Choice& choice : choices_) made += choice.made;
  return {{"prompt_tokens", prompt_tokens_},
          {"completion_tokens", made},
          {"total_tokens", prompt_tokens_ + made}};
}

Json Reply::usage_part() const {
  Json out = request_.chat ? object("chat.completion", "chat.completion.chunk", true)
                           : object("text_completion", "text_completion", true);
  out["usage"] = usage();
  return out;
}

Json Reply::log_probs_of(const Choice& choice, std::size_t from) const {
  Json tokens = Json::array(), values = Json::array(), tops = Json::array(), offsets = Json::array();
  for (std::size_t i = from; i < choice.scored.size(); ++i) {
    const Scored& s = choice.scored[i];
    const std::string text = printed(language_.bytes_of(s.previous, s.token.id));
    tokens.push_back(text);
    offsets.push_back(s.offset);
    values.push_back(s.first ? Json(nullptr) : Json(s.token.log_prob));
    if (s.first) {
      tops.push_back(nullptr);
      continue;
    }
    Json top = Json::object();
    for (const rollout::Likely& likely : s.token.most_likely) {
      // Two ids may have one text; the first one is more likely.
      top.emplace(printed(language_.bytes_of(s.previous, likely.id)), likely.log_prob);
    }
    top.emplace(text, s.token.log_prob);
    tops.push_back(std::move(top));
  }
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(values)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

Json Reply::chat_log_probs_of(const Choice& choice, std::size_t from) const {
  const auto entry = [&](std::int32_t previous, std::int32_t id, double log_prob) {
    const std::string bytes = language_.bytes_of(previous, id);
    Json numbers = Json::array();
    for (const char c : bytes) numbers.push_back(static_cast<unsigned char>(c));
    return Json{{"token", printed(bytes)}, {"logprob", log_prob}, {"bytes", std::move(numbers)}};
  };
  Json content = Json::array();
  for (std::size_t i = from; i < choice.scored.size(); ++i) {
    const Scored& s = choice.scored[i];
    Json one = entry(s.previous, s.token.id, s.token.log_prob);
    Json top = Json::array();
    for (const rollout::Likely& likely : s.token.most_likely)
      top.push_back(entry(s.previous, likely.id, likely.log_prob));
    one["top_logprobs"] = std::move(top);
    content.push_back(std::move(one));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

Json Reply::whole() const {
  Json out = request_.chat ? object("chat.completion", "", false) : object("text_completion", "", false);
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const Choice& choice = choices_[i];
    Json of = {{"index", i}};
    if (request_.chat) {
      of["message"] = {{"role", "assistant"}, {"content", choice.text}, {"refusal", nullptr}};
      of["logprobs"] = request_.log_probs ? chat_log_probs_of(choice, 0) : Json(nullptr);
    } else {
      of["text"] = choice.text;
      of["logprobs"] = request_.log_probs ? log_probs_of(choice, 0) : Json(nullptr);
    }
    of["finish_reason"] = choice.finish;
    out["choices"].push_back(std::move(of));
  }
  out["usage"] = usage();
  return out;
}

}  // namespace mantissa::serve
