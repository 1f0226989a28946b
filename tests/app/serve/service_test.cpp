// Replies: the bits of generate() and of a conversation, whole and in parts.
#include "mantissa/app/serve/service.h"

#include <gtest/gtest.h>

#include "app/serve/served.h"

namespace mantissa::serve {
namespace {

using mantissa::testing::has;
using mantissa::testing::Served;
using mantissa::testing::TemporaryFolder;
using mantissa::testing::trained;
using nlohmann::json;

api::Generations generated(const api::Model& model, const std::string& prompt, api::GenerateOptions options,
                           const std::string& policy) {
  const api::Prompt one{prompt, {}};
  options.precision.policy = policy;
  return api::generate(model, {&one, 1}, options);
}

TEST(Service, AnswersWithTheBitsOfGenerateUnderEveryPolicy) {
  const TemporaryFolder folder;
  const api::Model model = trained(folder);
  for (const char* policy :
       {"32-true", "64-true", "bf16-mixed", "16-mixed", "fp8-hybrid", "bf16-mixed compute=nvfp4"}) {
    SCOPED_TRACE(policy);
    Served served(model, policy);
    api::GenerateOptions options;
    options.max_new_tokens = 20;
    // Under scaling=current samples that are made together depend on each other.
    const int n = std::string_view(policy).find("nvfp4") == std::string_view::npos ? 3 : 1;
    options.samples = n;
    options.temperature = 1.5;
    options.top_p = 0.9;
    options.seed = 7;
    const json reply = served.post({{"prompt", "Kim said"},
                                    {"max_tokens", 20},
                                    {"n", n},
                                    {"temperature", 1.5},
                                    {"top_p", 0.9},
                                    {"seed", 7},
                                    {"logprobs", 1}});
    const api::Generations want = generated(model, "Kim said", options, policy);
    ASSERT_EQ(reply["choices"].size(), want.all.size()) << reply;
    for (std::size_t i = 0; i < want.all.size(); ++i) {
      const json& choice = reply["choices"][i];
      const json text =
          json::parse(json(want.all[i].text).dump(-1, ' ', false, json::error_handler_t::replace));
      EXPECT_EQ(choice["text"], text);
      EXPECT_EQ(choice["logprobs"]["token_logprobs"].get<std::vector<double>>(), want.all[i].log_probs);
      EXPECT_EQ(choice["finish_reason"], "length");
    }
    EXPECT_EQ(reply["usage"],
              (json{{"prompt_tokens", 8}, {"completion_tokens", 20 * n}, {"total_tokens", 8 + 20 * n}}));
  }
}

TEST(Service, AnswersSeveralPromptsAndIds) {
  const TemporaryFolder folder;
  Served served(trained(folder));
  const json texts = served.post({{"prompt", {"Kim", "said"}}, {"max_tokens", 4}, {"logprobs", 0}});
  const json ids =
      served.post({{"prompt", {{75, 105, 109}, {115, 97, 105, 100}}}, {"max_tokens", 4}, {"logprobs", 0}});
  ASSERT_EQ(texts["choices"].size(), 2U) << texts;
  EXPECT_EQ(texts["choices"], ids["choices"]);
  EXPECT_EQ(texts["usage"]["prompt_tokens"], 7);
}

/// What lm-evaluation-harness reads.
TEST(Service, EchoesThePromptWithItsLogProbabilities) {
  const TemporaryFolder folder;
  Served served(trained(folder));
  const json made = served.post({{"prompt", "K"}, {"max_tokens", 6}, {"logprobs", 1}, {"temperature", 0}});
  std::vector<int> ids = {'K'};
  for (const json& token : made["choices"][0]["logprobs"]["tokens"]) {
    const std::string text = token;
    ids.push_back(text.starts_with("bytes:") ? std::stoi(text.substr(8), nullptr, 16)
                                             : static_cast<unsigned char>(text[0]));
  }
  const json scored = served.post(
      {{"prompt", {ids}}, {"max_tokens", 1}, {"logprobs", 1}, {"echo", true}, {"temperature", 0}});
  const json& log_probs = scored["choices"][0]["logprobs"];
  ASSERT_EQ(log_probs["token_logprobs"].size(), 8U) << scored;
  EXPECT_TRUE(log_probs["token_logprobs"][0].is_null());
  EXPECT_TRUE(log_probs["top_logprobs"][0].is_null());
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(log_probs["token_logprobs"][i + 1], made["choices"][0]["logprobs"]["token_logprobs"][i]);
    EXPECT_EQ(log_probs["tokens"][i + 1], made["choices"][0]["logprobs"]["tokens"][i]);
    EXPECT_EQ(log_probs["top_logprobs"][i + 1], made["choices"][0]["logprobs"]["top_logprobs"][i]);
  }
  const json none = served.post({{"prompt", {ids}}, {"max_tokens", 0}, {"logprobs", 1}, {"echo", true}});
  EXPECT_EQ(none["choices"][0]["logprobs"]["token_logprobs"].size(), 7U) << none;
  EXPECT_EQ(none["choices"][0]["finish_reason"], "length");
  const json plain = served.post({{"prompt", "Kim"}, {"max_tokens", 0}, {"echo", true}});
  EXPECT_EQ(plain["choices"][0]["text"], "Kim");
  EXPECT_TRUE(plain["choices"][0]["logprobs"].is_null());
}

TEST(Service, EndsBeforeAStopStringAcrossTokens) {
  const TemporaryFolder folder;
  const api::Model model = trained(folder);
  Served served(model);
  const json free = served.post({{"prompt", "Kim said"}, {"max_tokens", 24}});
  const std::string text = free["choices"][0]["text"];
  ASSERT_EQ(text.size(), 24U) << text;
  const std::string stop = text.substr(9, 3);  // three tokens of the byte model
  const json stopped = served.post({{"prompt", "Kim said"}, {"max_tokens", 24}, {"stop", stop}});
  EXPECT_EQ(stopped["choices"][0]["text"], text.substr(0, text.find(stop)));
  EXPECT_EQ(stopped["choices"][0]["finish_reason"], "stop");
  api::GenerateOptions options;
  options.stop = {stop};
  EXPECT_EQ(stopped["choices"][0]["text"], generated(model, "Kim said", options, "32-true").all[0].text);
}

TEST(Service, StreamsPartsThatJoinToTheWhole) {
  const TemporaryFolder folder;
  Served served(trained(folder));
  // At this temperature the bytes of characters fall apart.
  const json body = {{"prompt", "Kim"}, {"max_tokens", 60}, {"temperature", 2}, {"seed", 3},
                     {"n", 2},          {"echo", true},     {"stop", "e"}};
  json streamed = body;
  streamed["stream_options"] = {{"include_usage", true}};
  const std::vector<std::string> events = served.stream(streamed);
  ASSERT_GT(events.size(), 3U);
  EXPECT_EQ(events.back(), "[DONE]");
  const json whole = served.post(body);
  std::string texts[2];
  json finish[2];
  for (std::size_t i = 0; i + 2 < events.size(); ++i) {
    const json part = json::parse(events[i]);
    EXPECT_EQ(part["object"], "text_completion");
    const json& choice = part["choices"].at(0);
    texts[choice["index"].get<std::size_t>()] += choice["text"].get<std::string>();
    if (!choice["finish_reason"].is_null())
      finish[choice["index"].get<std::size_t>()] = choice["finish_reason"];
  }
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(texts[i], whole["choices"][i]["text"]);
    EXPECT_EQ(finish[i], whole["choices"][i]["finish_reason"]);
  }
  const json usage = json::parse(events[events.size() - 2]);
  EXPECT_TRUE(usage["choices"].empty());
  EXPECT_EQ(usage["usage"], whole["usage"]);
}

TEST(Service, StreamsLogProbabilitiesThatJoinToTheWhole) {
  const TemporaryFolder folder;
  Served served(trained(folder));
  const json body = {{"prompt", "Kim"}, {"max_tokens", 9}, {"echo", true}, {"logprobs", 2}};
  json joined;
  std::string text;
  for (const std::string& event : served.stream(body)) {
    if (event == "[DONE]") break;
    const json choice = json::parse(event)["choices"].at(0);
    text += choice["text"].get<std::string>();
    for (const auto& [name, values] : choice["logprobs"].items()) {
      for (const json& value : values) joined[name].push_back(value);
    }
  }
  const json whole = served.post(body)["choices"][0];
  EXPECT_EQ(text, whole["text"]);
  EXPECT_EQ(joined, whole["logprobs"]);
  EXPECT_EQ(joined["text_offset"].back(), 11);
}

TEST(Service, KeepsACharacterOfSeveralTokensWholeInAStream) {
  const TemporaryFolder folder;
  Served served(trained(folder));
  const EncodedPrompt prompt = served.language.encode(read_completion(R"({"prompt": "a"})", {}, {})).at(0);
  auto text = served.language.growing_text(prompt, false);
  ASSERT_TRUE(text);
  EXPECT_EQ(text->push(0xe2), "");
  EXPECT_EQ(text->push(0x96), "");
  EXPECT_EQ(text->push(0x81), "▁");
}

TEST(Service, ChatsWithTheBitsOfAConversation) {
  const TemporaryFolder folder;
  const api::Model model = trained(folder);
  Served served(model);
  api::ChatOptions options;
  options.chat_template = "chatml";
  options.system = "Be brief.";
  options.max_new_tokens = 12;
  api::Chat chat(model, options);
  json messages = {{{"role", "system"}, {"content", "Be brief."}}};
  for (const char* question : {"one", "two"}) {
    const api::ChatAnswer want = chat.ask(question);
    messages.push_back({{"role", "user"}, {"content", question}});
    const json body = {{"messages", messages}, {"max_tokens", 12}, {"logprobs", true}, {"top_logprobs", 1}};
    const json reply = served.post(body, "/v1/chat/completions");
    const json& choice = reply["choices"].at(0);
    EXPECT_EQ(choice["message"]["content"],
              json::parse(json(want.text).dump(-1, ' ', false, json::error_handler_t::replace)));
    std::vector<double> log_probs;
    for (const json& token : choice["logprobs"]["content"]) log_probs.push_back(token["logprob"]);
    EXPECT_EQ(log_probs, want.log_probs);
    EXPECT_EQ(reply["usage"]["prompt_tokens"], want.prompt_tokens);
    std::string streamed;
    for (const std::string& event : served.stream(body, "/v1/chat/completions")) {
      if (event == "[DONE]") break;
      const json delta = json::parse(event)["choices"].at(0)["delta"];
      EXPECT_EQ(delta.value("role", "assistant"), "assistant");
      streamed += delta.value("content", "");
    }
    EXPECT_EQ(streamed, choice["message"]["content"].get<std::string>());
    messages.push_back({{"role", "assistant"}, {"content", want.text}});
  }
}

TEST(Service, RefusesWhatDoesNotFit) {
  const TemporaryFolder folder;
  Served served(trained(folder));
  const auto expect = [&](const json& body, int status, const char* message) {
    const json error = served.post(body);
    EXPECT_EQ(error.value("status", 200), status) << error;
    const std::string text = status == 200 ? "" : error["error"].value("message", "");
    EXPECT_TRUE(has(text, message)) << error;
  };
  expect({{"prompt", std::string(600, 'a')}}, 400, "prompt: has 600 tokens, but a sequence has at most 512");
  expect({{"prompt", "a"}, {"max_tokens", 512}}, 400, "max_tokens: expected at most 511");
  expect({{"prompt", ""}}, 400, "is empty");
  expect({{"prompt", {256}}}, 400, "id 256 at position 0 is outside");
  expect({{"prompt", std::string(500, 'a')}, {"n", 2}}, 200, "");
  // The thread of the model forgets a request after it has answered it.
  while (served.scheduler.requests() > 0) std::this_thread::yield();
}

TEST(Service, RefusesMoreRequestsThanTheQueueHas) {
  const TemporaryFolder folder;
  Limits limits;
  limits.queue = 2;
  Served served(trained(folder), "32-true", limits);
  const std::string body = R"({"prompt": "a", "max_tokens": 500})";
  auto first = served.service.post("/v1/completions", body);
  const auto second = served.service.post("/v1/completions", body);
  EXPECT_EQ(served.post_text(body)["status"], 429);
  EXPECT_TRUE(first->whole([] { return true; }));
  first.reset();
  while (served.scheduler.requests() == 2) std::this_thread::yield();
  EXPECT_EQ(served.post({{"prompt", "a"}, {"max_tokens", 1}}).value("status", 200), 200);
}

TEST(Service, EndsAnAnswerWhoseClientHasGoneOrWhoseTimeIsUp) {
  const TemporaryFolder folder;
  Limits limits;
  limits.request_seconds = 0;
  Served served(trained(folder), "32-true", limits);
  EXPECT_EQ(served.post({{"prompt", "a"}, {"max_tokens", 500}})["error"]["code"], "timeout");
  EXPECT_FALSE(served.service.post("/v1/completions", R"({"prompt": "a"})")->whole([] { return false; }));
  while (served.scheduler.requests() > 0) std::this_thread::yield();
}

TEST(Service, EndsRequestsInWorkWithAnErrorWhenItStops) {
  const TemporaryFolder folder;
  Served served(trained(folder));
  const auto whole = served.service.post("/v1/completions", R"({"prompt": "a", "max_tokens": 500, "n": 64})");
  const auto streamed =
      served.service.post("/v1/completions", R"({"prompt": "a", "max_tokens": 500, "stream": true})");
  served.service.stop();
  EXPECT_THROW(whole->whole([] { return true; }), RequestError);
  std::string last;
  while (const auto events = streamed->next_events([] { return true; })) last = *events;
  EXPECT_TRUE(has(last, "shutting_down")) << last;
  EXPECT_EQ(served.post({{"prompt", "a"}})["status"], 503);
}

TEST(Service, NamesItsModel) {
  const TemporaryFolder folder;
  Served served(trained(folder));
  EXPECT_EQ(json::parse(served.service.get("/v1/models"))["data"][0]["id"], "tiny");
  EXPECT_EQ(json::parse(served.service.get("/v1/models/tiny"))["object"], "model");
  EXPECT_THROW(served.service.get("/v1/models/other"), RequestError);
  EXPECT_EQ(json::parse(served.service.get("/health"))["status"], "ok");
}

}  // namespace
}  // namespace mantissa::serve
