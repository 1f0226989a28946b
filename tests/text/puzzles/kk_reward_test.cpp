#include "mantissa/text/puzzles/kk_reward.h"

#include <gtest/gtest.h>

#include <string>

namespace mantissa::text {
namespace {

const std::string kSolution = "(1) Zoey is a knight\n(2) Oliver is a knave";
const std::string kRight = "(1) Zoey is a knight\n(2) Oliver is a knave";
const std::string kWrong = "(1) Zoey is a knave\n(2) Oliver is a knave";

std::string response(const std::string& answer) {
  return "Assistant: <think>Hm.</think> <answer>" + answer + "</answer>";
}

double answer_part(const std::string& answer, const std::string& solution = kSolution) {
  return kk_reward(response(answer), solution).answer;
}

TEST(KkReward, TheFourTotals) {
  EXPECT_EQ(kk_reward(response(kRight), kSolution).total(), 3);
  EXPECT_EQ(kk_reward(response(kWrong), kSolution).total(), -0.5);
  EXPECT_EQ(kk_reward(response("Nobody knows."), kSolution).total(), -1);
  EXPECT_EQ(kk_reward("Assistant: " + kRight, kSolution).total(), -3);
}

TEST(KkReward, EachTagMustOccurExactlyOnce) {
  const auto format = [](const std::string& text) {
    return kk_reward("Assistant:" + text, kSolution).format;
  };
  EXPECT_EQ(format("<think></think><answer></answer>"), 1);
  for (const std::string tag : {"<think>", "</think>", "<answer>", "</answer>"}) {
    std::string without = "<think></think><answer></answer>";
    without.erase(without.find(tag), tag.size());
    EXPECT_EQ(format(without), -1) << "without " << tag;
    EXPECT_EQ(format("<think></think><answer></answer>" + tag), -1) << "twice " << tag;
    EXPECT_EQ(format(tag + "<think></think><answer></answer>"), -1) << "twice " << tag;
  }
}

TEST(KkReward, TheTagsMustBeInOrder) {
  const auto format = [](const std::string& text) {
    return kk_reward("Assistant:" + text, kSolution).format;
  };
  EXPECT_EQ(format("<answer></answer><think></think>"), -1);
  EXPECT_EQ(format("</think><think><answer></answer>"), -1);
  EXPECT_EQ(format("<think></think></answer><answer>"), -1);
  EXPECT_EQ(format("<think><answer></think></answer>"), -1);
}

TEST(KkReward, ABadFormatVoidsARightAnswer) {
  const KkReward reward = kk_reward("Assistant: <answer>" + kRight + "</answer>", kSolution);
  EXPECT_EQ(reward.format, -1);
  EXPECT_EQ(reward.answer, -2);
}

TEST(KkReward, TagsAndMarkersAreCaseSensitiveAndLiteral) {
  EXPECT_EQ(kk_reward("Assistant: <Think></think><answer>" + kRight + "</answer>", kSolution).total(), -3);
  EXPECT_EQ(kk_reward("Assistant: <think ></think><answer>" + kRight + "</answer>", kSolution).total(), -3);
  const std::string body = " <think></think><answer>" + kRight + "</answer>";
  EXPECT_EQ(kk_reward("assistant:" + body, kSolution).total(), -1);
  EXPECT_EQ(kk_reward("Assistant :" + body, kSolution).total(), -1);
  EXPECT_EQ(kk_reward("<|IM_START|>assistant" + body, kSolution).total(), -1);
}

TEST(KkReward, TextOutsideTheTagsIsAllowed) {
  EXPECT_EQ(
      kk_reward("x Assistant: so <think>a</think> b <answer>" + kRight + "</answer> done. knight", kSolution)
          .total(),
      3);
}

TEST(KkReward, OnlyTheTextAfterTheFirstMarkerCounts) {
  const std::string tags_in_prompt = "Use <think> </think> <answer> </answer>. Zoey said … ";
  EXPECT_EQ(kk_reward(tags_in_prompt + response(kRight), kSolution).total(), 3);
  EXPECT_EQ(
      kk_reward(tags_in_prompt + "<|im_start|>assistant\n<think>a</think><answer>" + kRight + "</answer>",
                kSolution)
          .total(),
      3);
  // A second marker is ordinary text: the tags before it count too.
  EXPECT_EQ(kk_reward(response(kRight) + response(kRight), kSolution).total(), -3);
  EXPECT_EQ(kk_reward(response(kRight) + "Assistant:", kSolution).total(), 3);
}

TEST(KkReward, AssistantTakesPrecedenceOverTheChatMarkerInAnyOrder) {
  const std::string tags = "<think></think><answer>" + kRight + "</answer>";
  EXPECT_EQ(kk_reward("<|im_start|>assistant" + tags + "Assistant:", kSolution).total(), -3);
  EXPECT_EQ(kk_reward("<|im_start|>assistant<think> Assistant:" + tags, kSolution).total(), 3);
}

TEST(KkReward, WithoutAMarkerTheFormatCoversTheWholeTextAndTheAnswerIsLost) {
  const KkReward good = kk_reward("<think></think><answer>" + kRight + "</answer>", kSolution);
  EXPECT_EQ(good.format, 1);
  EXPECT_EQ(good.answer, -2);
  EXPECT_EQ(kk_reward(kRight, kSolution).total(), -3);
  EXPECT_EQ(kk_reward("", kSolution).total(), -3);
}

TEST(KkReward, TheNumberOfRolesMustBeTheNumberOfNames) {
  EXPECT_EQ(answer_part("Zoey is a knight, Oliver is a knave, as knights go"), -2);
  EXPECT_EQ(answer_part("Zoey is a knight"), -2);
  EXPECT_EQ(answer_part("Zoey is a knight and Oliver is not"), -2);
}

TEST(KkReward, RolesAreCountedInsideWordsAndInAnyCase) {
  EXPECT_EQ(answer_part(kRight + " Knighthood"), -2);
  EXPECT_EQ(answer_part(kRight + " KNAVERY"), -2);
  EXPECT_EQ(answer_part("zoey IS A KNIGHT, oLiVeR Is a kNaVe"), 2);
}

TEST(KkReward, LettersOfAnyScriptMatchInEitherCase) {
  const std::string solution = "(1) \u00c9mile is a knight\n(2) \u041e\u043b\u044c\u0433\u0430 is a knave";
  EXPECT_EQ(answer_part("\u00e9mile is a knight, \u041e\u041b\u042c\u0413\u0410 IS A KNAVE", solution), 2);
  EXPECT_EQ(answer_part("Emile is a knight, \u043e\u043b\u044c\u0433\u0430 is a knave", solution), -2);
  EXPECT_EQ(answer_part("Zoey \u0130s a \u212aNIGHT, Oliver \u0131\u017f a knave"), 2)
      << "as under re.IGNORECASE";
  EXPECT_EQ(answer_part("Zoey is a kn\u0131ght, Oliver is a knave"), -2) << "not a knight to str.lower()";
}

TEST(KkReward, EachNameMustBeGivenItsRoleInWholeWords) {
  EXPECT_EQ(answer_part("Zoey is a knight. Oliver is the knave"), -2);
  EXPECT_EQ(answer_part("Zoey is a knight. Oliver: knave"), -2);
  EXPECT_EQ(answer_part("Zoey is a knighty. Oliver is a knave"), -2);
  EXPECT_EQ(answer_part("XZoey is a knight. Oliver is a knave"), -2);
  EXPECT_EQ(answer_part("Zoey2 is a knight. Oliver is a knave"), -2);
  EXPECT_EQ(answer_part("Zoey isa knight. Oliver is a knave"), -2);
  EXPECT_EQ(answer_part("**Zoey** is a knight. Oliver is a knave"), -2);
  EXPECT_EQ(answer_part("-Zoey is a knight! (Oliver is a knave)"), 2);
  EXPECT_EQ(answer_part("Oliver is a knave and Zoey is a knight"), 2);  // order does not matter
}

TEST(KkReward, TheFirstRoleOfANameCounts) {
  EXPECT_EQ(answer_part("Zoey is a knight, Zoey is a knave"), -2);  // no role for Oliver
  EXPECT_EQ(
      answer_part("Ann is a knave, Ann is a knight", "Ann is a knight\nAnn is a knight\nBob is a knave"), -2);
  EXPECT_EQ(answer_part("Zoey is aknave Zoey is a knight", "Zoey is a knight"), -2);
}

TEST(KkReward, WordsEndByUnicodeRules) {
  // Letters of any script continue a word; quotes, dashes and combining marks do not.
  EXPECT_EQ(answer_part("\u00e9Zoey is a knight, Oliver is a knave"), -2);
  EXPECT_EQ(answer_part("Zoey is a knight\u4e2d, Oliver is a knave"), -2);
  EXPECT_EQ(answer_part("\u201cZoey is a knight\u201d\u2014Oliver is a knave\u2026"), 2);
  EXPECT_EQ(answer_part("Zoey is a knight\u0301, Oliver is a knave"), 2);
  EXPECT_EQ(answer_part("\xffZoey is a knight\x80, Oliver is a knave\xe2\x82"), 2);  // not UTF-8: ends a word
}

TEST(KkReward, AnyUnicodeWhiteSpaceMaySeparateWords) {
  EXPECT_EQ(answer_part("Zoey\u00a0is\u2003a\u3000knight\nOliver \t\n is\u0085a\x1cknave"), 2);
  EXPECT_EQ(answer_part("Zoey\u200bis a knight, Oliver is a knave"),
            -2);  // zero width space is not white space
}

TEST(KkReward, ABlankAnswerIsUnreadable) {
  EXPECT_EQ(answer_part(""), -2);
  EXPECT_EQ(answer_part(" \n\u3000"), -2);
  EXPECT_EQ(kk_reward(response(" "), kSolution).total(), -1);
}

TEST(KkReward, NamesAreTheFirstWordsOfLinesWithARole) {
  EXPECT_EQ(answer_part("Mia is a knave", "\n(1) Mia is a knave\nno more\n\n"), 2);
  EXPECT_EQ(answer_part("Mia is a knave", "1. Mia, whom we met, is surely a KNAVE\r\n"), 2);
  EXPECT_EQ(answer_part("Jos\u00e9 is a knave", "(1) Jos\u00e9 is a knave"), 2);
  EXPECT_EQ(answer_part("Mia is a knave", "\u0663) Mia is a knave"), 2) << "a digit of any script is no name";
  EXPECT_EQ(answer_part("Mia is a knave", "M1a Mia is a knave"), 2);
  EXPECT_EQ(answer_part("Mia is a knave", "Mia is a knaves"), -2);  // no role, so no names
  EXPECT_EQ(answer_part("Mia is a knave", ""), -2);
}

TEST(KkReward, ANameThatIsPartOfAnother) {
  EXPECT_EQ(answer_part("Annabel is a knave, Ann is a knight", "Ann is a knight\nAnnabel is a knave"), 2);
  EXPECT_EQ(answer_part("Annabel is a knave, Mary Ann is a knave", "Ann is a knight\nAnnabel is a knave"),
            -1.5);
}

}  // namespace
}  // namespace mantissa::text
