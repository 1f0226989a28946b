// Reads the golden values of tools/golden_chat.py.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include <nlohmann/json.hpp>

#include "mantissa/text/chat/template.h"

namespace mantissa::chat {

inline nlohmann::ordered_json read_golden(const std::string& name) {
  const std::string path = std::string(MANTISSA_SOURCE_DIR) + "/tests/golden/chat/" + name;
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  return nlohmann::ordered_json::parse(file);
}

/// Renders at the time that the golden values have.
inline RenderOptions at_golden_time() {
  RenderOptions options;
  options.clock = [] {
    LocalTime time;
    std::tm& t = time.calendar;
    t.tm_year = 124, t.tm_mon = 6, t.tm_mday = 26, t.tm_hour = 15, t.tm_min = 4, t.tm_sec = 5, t.tm_wday = 5,
    t.tm_yday = 207;
    time.microsecond = 123456;
    return time;
  };
  return options;
}

/// Compares a rendering with a row that has "text", "raised" or "error".
inline void expect_row(const std::string& source, const nlohmann::ordered_json& context,
                       const nlohmann::ordered_json& row) {
  SCOPED_TRACE(row.dump());
  try {
    const Rendered rendered = Template::parse(source, "golden").render(context, at_golden_time());
    ASSERT_TRUE(row.contains("text")) << rendered.text;
    EXPECT_EQ(rendered.text, row["text"].get<std::string>());
    if (row.contains("generations")) {
      EXPECT_EQ(nlohmann::ordered_json(rendered.generations), row["generations"]);
    }
  } catch (const RaisedByTemplate& error) {
    EXPECT_EQ(error.raised(), row.value("raised", "<nothing is raised>"));
  } catch (const TemplateError& error) {
    EXPECT_TRUE(row.contains("error")) << error.what();
  }
}

}  // namespace mantissa::chat
