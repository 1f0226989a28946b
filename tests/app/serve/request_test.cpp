// Bodies of requests: what is read, and what is wrong with others.
#include "mantissa/app/serve/request.h"

#include <gtest/gtest.h>

#include "app/api/tiny.h"
#include "mantissa/app/serve/request_error.h"

namespace mantissa::serve {
namespace {

using mantissa::testing::has;

TextRequest completion(const std::string& body) {
  return read_completion(body, {}, {});
}

/// Returns the message of the error 400, with the field at its end.
std::string fault(const std::string& body, bool chat = false) {
  try {
    (chat ? read_chat : read_completion)(body, {}, {});
  } catch (const RequestError& error) {
    EXPECT_EQ(error.status(), 400);
    return error.message() + " [" + error.param() + "]";
  }
  return "no error";
}

TEST(Request, HasAPromptInEachForm) {
  EXPECT_EQ(completion(R"({"prompt": "a"})").prompts.at(0).text, "a");
  EXPECT_EQ(completion(R"({"prompt": ["a", "b"]})").prompts.at(1).text, "b");
  EXPECT_EQ(completion(R"({"prompt": [1, 2]})").prompts.at(0).ids, (std::vector<std::int32_t>{1, 2}));
  EXPECT_EQ(completion(R"({"prompt": [[1], [2, 3]]})").prompts.at(1).ids, (std::vector<std::int32_t>{2, 3}));
}

TEST(Request, HasTheDefaultsForAbsentFieldsAndNull) {
  Defaults defaults;
  defaults.sampling = {.temperature = 0.5, .top_k = 3, .seed = 9};
  defaults.stop = {"x"};
  const TextRequest r = read_completion(
      R"({"prompt": "a", "top_k": null, "temperature": null, "max_tokens": null})", defaults, {});
  EXPECT_EQ(r.sampling.temperature, 0.5);
  EXPECT_EQ(r.sampling.top_k, 3);
  EXPECT_EQ(r.sampling.seed, 9U);
  EXPECT_EQ(r.stop, defaults.stop);
  EXPECT_FALSE(r.max_tokens);
  EXPECT_FALSE(r.log_probs);
}

TEST(Request, ReadsEachField) {
  const TextRequest r = completion(
      R"({"model": "m", "prompt": "a", "max_tokens": 16.0, "temperature": 1, "top_p": 0.5, "top_k": 4, "min_p": 0.1,
          "repetition_penalty": 1.2, "seed": 9223372036854775807, "stop": ["x", "y"], "n": 2, "logprobs": 0,
          "echo": true, "stream": true, "stream_options": {"include_usage": true}, "user": "u", "best_of": 2,
          "presence_penalty": 0, "frequency_penalty": 0.0, "logit_bias": {}, "suffix": ""})");
  EXPECT_EQ(r.max_tokens, 16);
  EXPECT_EQ(r.sampling.seed, 9223372036854775807U);
  EXPECT_EQ(r.stop.size(), 2U);
  EXPECT_EQ(r.sequences(), 2);
  EXPECT_TRUE(r.log_probs && r.echo && r.stream && r.include_usage);
  EXPECT_EQ(r.most_likely, 0);
}

TEST(Request, IsRefusedWithTheFieldThatIsWrong) {
  const std::pair<const char*, const char*> faults[] = {
      {"", "the body: expected a JSON object, got nothing"},
      {"[]", "the body: expected a JSON object, got an array"},
      {"{\"prompt\": \"a\"", "is truncated"},
      {"{\"prompt\": \"\xff\"}", "is not JSON from byte"},
      {"{\"prompt\": \"\\ud800\"}", "is not JSON from byte"},
      {R"({"prompt": "a", "prompt": "b"})", "twice"},
      {R"({"prompt": "a", "temperature": NaN})", "is not JSON from byte"},
      {R"({"prompt": "a", "temperature": 1e999})", "number out of range"},
      {R"({})", "prompt: expected a string"},
      {R"({"prompt": []})", "prompt: expected a string"},
      {R"({"prompt": ["a", [1]]})", "prompt: expected a string"},
      {R"({"prompt": [1, "a"]})", "prompt: expected token ids, got \"a\""},
      {R"({"prompt": [-1]})", "prompt: expected token ids, got -1"},
      {R"({"prompt": [2147483648]})", "prompt: expected token ids, got 2147483648"},
      {R"({"prompt": "a", "n": 0})", "n: expected a whole number of 1 to 128, got 0 [n]"},
      {R"({"prompt": "a", "n": 18446744073709551615})", "n: expected a whole number of 1 to 128"},
      {R"({"prompt": "a", "n": 1.5})", "n: expected a whole number"},
      {R"({"prompt": "a", "n": "2"})", "n: expected a whole number of 1 to 128, got \"2\" [n]"},
      {R"({"prompt": "a", "max_tokens": 99999999999})", "max_tokens: expected a whole number"},
      {R"({"prompt": "a", "max_tokens": 0})", "max_tokens: 0 gives an empty answer"},
      {R"({"prompt": "a", "temperature": -1})", "temperature: expected 0"},
      {R"({"prompt": "a", "top_p": 0})", "top_p: expected a number above 0"},
      {R"({"prompt": "a", "stop": [""]})", "stop: expected strings that are not empty"},
      {R"({"prompt": "a", "stop": 1})", "stop: expected strings that are not empty, got 1"},
      {R"({"prompt": "a", "logprobs": 21})", "logprobs: expected a whole number of 0 to 20"},
      {R"({"prompt": "a", "stream_options": {}})", "stream_options: needs"},
      {R"({"prompt": "a", "stream": true, "stream_options": {"usage": true}})", "stream_options.usage"},
      {R"({"prompt": "a", "presence_penalty": 0.5})", "presence_penalty: is not supported"},
      {R"({"prompt": "a", "temprature": 1})", "did you mean \"temperature\"?"},
      {R"({"prompt": "a", "messages": []})", "is not a field of this request"},
      {R"({"prompt": ["a", "b"], "n": 100})", "expected at most 128 sequences, got 200"},
  };
  for (const auto& [body, expected] : faults)
    EXPECT_TRUE(has(fault(body), expected)) << body << "\n" << fault(body);
}

TEST(Request, WithDeepJsonIsRefused) {
  std::string deep = R"({"prompt": )";
  deep.append(100000, '[');
  EXPECT_TRUE(has(fault(deep), "nests deeper than 64 levels")) << fault(deep);
}

TEST(Request, ForAChatHasMessages) {
  const TextRequest r = read_chat(
      R"({"messages": [{"role": "developer", "content": "s"},
                       {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
          "max_completion_tokens": 3, "logprobs": true, "top_logprobs": 2})",
      {}, {});
  ASSERT_EQ(r.messages.size(), 2U);
  EXPECT_EQ(r.messages[0].role, "system");
  EXPECT_EQ(r.messages[1].content, "ab");
  EXPECT_EQ(r.max_tokens, 3);
  EXPECT_EQ(r.most_likely, 2);
}

TEST(Request, ForAChatIsRefusedWithTheFieldThatIsWrong) {
  const std::pair<const char*, const char*> faults[] = {
      {R"({})", "messages: expected an array of messages, got null [messages]"},
      {R"({"messages": []})", "messages: expected an array of messages"},
      {R"({"messages": [1]})", "messages[0]: expected an object, got 1"},
      {R"({"messages": [{"role": "tool", "content": ""}]})", "messages[0].role: expected \"system\""},
      {R"({"messages": [{"role": "user", "content": 1}]})", "messages[0].content: expected a string"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})",
       "messages[0].content: expected parts"},
      {R"({"messages": [{"role": "user", "content": "a"}], "top_logprobs": 1})", "top_logprobs: needs"},
      {R"({"messages": [{"role": "user", "content": "a"}], "tools": [{}]})", "tools: is not supported"},
      {R"({"messages": [{"role": "user", "content": "a"}], "response_format": {"type": "json_object"}})",
       "response_format: is not supported"},
      {R"({"messages": [{"role": "user", "content": "a"}], "echo": true})", "echo"},
  };
  for (const auto& [body, expected] : faults)
    EXPECT_TRUE(has(fault(body, true), expected)) << body << "\n" << fault(body, true);
}

}  // namespace
}  // namespace mantissa::serve
