// Errors with their places, what the caller gets besides the text, and limits.
#include <gtest/gtest.h>

#include <functional>

#include "text/chat/golden.h"

namespace mantissa::chat {
namespace {

using json = nlohmann::ordered_json;

std::string render(const std::string& source, const json& context = json::object()) {
  return Template::parse(source, "t").render(context).text;
}

std::string message_of(const std::string& source, const json& context = json::object()) {
  try {
    return "rendered: " + render(source, context);
  } catch (const TemplateError& error) {
    return error.what();
  }
}

TEST(ChatTemplate, AnErrorNamesTheConstructItsPlaceAndACure) {
  EXPECT_EQ(message_of("a\n {{ x | uper }}"), "t:2:9: unknown filter 'uper'. Fix: did you mean 'upper'?");
  EXPECT_EQ(message_of("{{ x is defind }}"), "t:1:9: unknown test 'defind'. Fix: did you mean 'defined'?");
  EXPECT_EQ(message_of("é {% import 'x' as y %}"),
            "t:1:6: the statement 'import' is not supported: a chat template is one file. Fix: write its "
            "content here");
  EXPECT_EQ(message_of("{% for x in y recursive %}{% endfor %}"),
            "t:1:15: recursive loops are not supported. Fix: use a macro that calls itself");
  EXPECT_EQ(message_of("{{ x.y.z }}"), "t:1:5: 'x' is undefined");
  EXPECT_EQ(message_of("{{ [1].append(2) }}"),
            "t:1:14: 'append' of 'list' is not allowed: templates cannot change values in place. Fix: build "
            "a new value, for example with '+'");
  EXPECT_EQ(message_of("{{ 'a'.encode() }}"),
            "t:1:7: 'encode' of 'str' is not supported. Fix: rewrite it with the methods of docs/chat.md");
  EXPECT_EQ(message_of("{{ [1] | map('string') }}"),
            "t:1:1: a generator cannot be printed. Fix: add the filter 'list'");
  EXPECT_EQ(message_of("{% if x %}"), "t:1:11: the template ends inside a block. Fix: add {% endif %}");
}

TEST(ChatTemplate, ARaisedExceptionKeepsTheTemplatesMessage) {
  try {
    render("{{ raise_exception('Only ' ~ 1 ~ ' system message') }}");
    FAIL();
  } catch (const RaisedByTemplate& error) {
    EXPECT_EQ(error.raised(), "Only 1 system message");
    EXPECT_EQ(error.place().column, 19u);
  }
}

TEST(ChatTemplate, InvalidUtf8IsAnError) {
  EXPECT_EQ(message_of("{{ 'a' }}\xff"), "t:1:1: the template is not valid UTF-8. Fix: re-encode the file");
  EXPECT_EQ(message_of("{{ x }}", {{"x", "\xff"}}),
            "t:1:1: x: a string of the conversation is not valid UTF-8. Fix: re-encode it");
}

TEST(ChatTemplate, KeysKeepTheOrderOfTheConversation) {
  EXPECT_EQ(render("{{ x | tojson }}", json::parse(R"({"x": {"z": 1, "a": {"k": 2, "b": 3}}})")),
            R"({"z": 1, "a": {"k": 2, "b": 3}})");
}

TEST(ChatTemplate, LargeDictsAreFoundByEqualKeys) {
  EXPECT_EQ(
      render("{% set d = dict([(0,0),(1,1),(2,2),(3,3),(4,4),(5,5),(6,6),(7,7),(8,8),(9,9),('a','b')]) %}"
             "{{ d[8.0] }}{{ d[true] }}{{ d.a }}{{ d.z is defined }}{{ 3 in d }}"),
      "81bFalseTrue");
}

TEST(ChatTemplate, GenerationBlocksInsideACaptureAreReported) {
  const std::string block = "{% generation %}a{% endgeneration %}";
  EXPECT_TRUE(Template::parse("{% macro m() %}" + block + "{% endmacro %}{{ m() }}", "t")
                  .render(json::object())
                  .lost_generation);
  const Rendered nested =
      Template::parse("x{% generation %}" + block + "b{% endgeneration %}", "t").render(json::object());
  EXPECT_EQ(nested.generations, (std::vector<std::pair<std::size_t, std::size_t>>{{1, 3}}));
}

TEST(ChatTemplate, TheContextGivesReasoningBothNames) {
  const json messages = {{{"role", "assistant"}, {"content", "c"}, {"reasoning", "r"}}};
  const json context = chat_context(messages, true, {{"bos_token", "<s>"}});
  EXPECT_EQ(context["messages"][0].dump(),
            R"({"thinking":"r","role":"assistant","content":"c","reasoning":"r","reasoning_content":"r"})");
  EXPECT_TRUE(context["tools"].is_null());
  EXPECT_THROW(chat_context(json::object(), true, {}), ConfigError);
  EXPECT_THROW(chat_context({"text"}, true, {}), ConfigError);
}

TEST(ChatTemplate, AHostileTemplateEndsInOneMessage) {
  const std::string deep(100000, '[');
  const std::string hostile[] = {
      "{{ 'a' * 10**9 }}",
      "{{ [0] * 10**12 }}",
      "{{ 'a' * 10**18 }}",
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
      "{% for a in range(99999) %}{{ 'x' * 99999 }}{% endfor %}",
      "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
      "{% set ns = namespace(x=[]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ "
      "ns.x }}",
      "{% set ns = namespace(x=[]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ "
      "ns.x == [ns.x][0][0] }}",
      "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}{% endfor %}",
      "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = ns.x | select %}{% endfor %}{{ "
      "ns.x | list }}",
      "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
      "{{ ('a' * 10**7).replace('a', 'b' * 10**7) }}",
      "{{ ('a' * 10**6).split('') }}{{ ('a,' * 10**7).split(',') | length }}{{ ('a ' * 10**8).split() }}",
      "{{ 'x'.center(10**12) }}{{ '%999999999d' % 1 }}",
      "{{ '{:999999999}'.format(1) }}",
      "{{ 'a' | indent(10**12) }}",
      "{{ {'a': 1} | tojson(indent=10**12) }}",
      "{{ 2 ** 99999999999 }}",
      "{{ range(10**18) }}",
      "{{ " + deep,
      "{{ " + std::string(100000, '(') + "1",
      "{{ 1" +
          [] {
            std::string sum;
            for (int i = 0; i < 100000; ++i) sum += "+1";
            return sum;
          }() +
          " }}",
      "{{ " + std::string(100000, '-') + "1 }}",
      "{{ x" +
          [] {
            std::string chain;
            for (int i = 0; i < 100000; ++i) chain += ".a";
            return chain;
          }() +
          " }}",
      [] {
        std::string blocks;
        for (int i = 0; i < 100000; ++i) blocks += "{% if 1 %}";
        return blocks;
      }()};
  for (const std::string& source : hostile) {
    const std::string message = message_of(source);
    EXPECT_EQ(message.substr(0, 2), "t:") << source.substr(0, 100) << "\n" << message.substr(0, 200);
    EXPECT_LT(message.size(), 400u);
  }
}

TEST(ChatTemplate, ValuesThatReferToThemselvesAreFreed) {
  EXPECT_EQ(
      render("{% set ns = namespace() %}{% macro m() %}{% endmacro %}{% set ns.m = m %}{% set ns.n = ns %}"
             "{% for x in [1] %}{% set ns.loop = loop %}{% set q = loop.changed(loop) %}{% set ns.c = "
             "loop.cycle %}{% endfor %}{{ ns.loop.index }}{{ ns.c(5) }}"),
      "15");
}

TEST(ChatTemplate, ADeepConversationIsAnError) {
  json deep = 1;
  for (int i = 0; i < 3000; ++i) deep = json::array({deep});
  EXPECT_EQ(message_of("{{ x }}", {{"x", deep}}).substr(0, 7), "t:1:1: ");
}

}  // namespace
}  // namespace mantissa::chat
