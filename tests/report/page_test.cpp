#include "mantissa/report/page.h"

#include <gtest/gtest.h>

#include <set>

#include "report/well_formed.h"

namespace mantissa::report {
namespace {

TEST(Escaped, LeavesNoMarkupInAnyText) {
  EXPECT_EQ(escaped("<a href=\"x\">'&'"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;");
  EXPECT_EQ(escaped("blocks.2 – naïve 😀"), "blocks.2 – naïve 😀");
}

TEST(Escaped, ReplacesBytesThatAreNotText) {
  EXPECT_EQ(escaped(std::string("a\0b\x1b[1m\x7f", 8)), "a\uFFFDb\uFFFD[1m\uFFFD");
  EXPECT_EQ(escaped("\xff\xc0\xaf\xe2\x82"), "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(escaped("\xed\xa0\x80"), "\uFFFD\uFFFD\uFFFD");            // half of a surrogate pair
  EXPECT_EQ(escaped("\xf4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");  // beyond the last code point
  EXPECT_EQ(escaped("a\u202eb"), "a\uFFFD\uFFFD\uFFFDb") << "a mark of direction";
}

TEST(Checker, FindsFaults) {
  EXPECT_EQ(test::fault_of("<p>a &lt; b<br/></p>"), "");
  for (const char* bad : {"<p>", "<p></b></p>", "a < b", "a > b", "<p a=b></p>", "<p a=\"1\" a=\"2\"></p>",
                          "&nbsp;", "<p id=\"x\"></p><p id=\"x\"></p>"})
    EXPECT_NE(test::fault_of(bad), "") << bad;
}

TEST(Page, IsWellFormedWithHostileTexts) {
  const std::string evil = "</title></style><script>alert('&')</script>\"><!--";
  Page page{.kind = evil, .title = evil, .subtitle = evil, .summary = "", .sections = {}};
  page.summary = verdict_html(Status::bad, evil, evil) + facts_html({{evil, module_html(evil)}});
  const Table table{
      .label = evil, .columns = {{evil}, {evil, true}}, .rows = {{{escaped(evil)}, {"1", 2.0}}}};
  page.sections.push_back({.id = "a",
                           .link = evil,
                           .heading = evil,
                           .intro = evil,
                           .body = disclosure(escaped(evil), command_box(evil)) + to_html(table) +
                                   to_html(Figure{.title = evil, .reading = evil, .body = "", .legend = ""}) +
                                   legend_html({{"s0", evil}})});
  const std::string html = to_html(page);
  EXPECT_EQ(test::fault_of(html), "");
  EXPECT_EQ(html.find("alert('&')"), std::string::npos);
}

TEST(Page, RefersToNothingOutside) {
  const std::string html =
      to_html(Page{.kind = "audit", .title = "t", .subtitle = "", .summary = "", .sections = {}});
  for (const char* word : {"http:", "https:", "url(", "@import", " src="})
    EXPECT_EQ(html.find(word), std::string::npos) << word;
}

TEST(Page, MarksDifferByShapeAndNotOnlyByColour) {
  std::set<std::string> shapes;
  for (const Status s : {Status::good, Status::warning, Status::bad, Status::unknown}) {
    const std::string mark = status_mark(s);
    shapes.insert(mark.substr(mark.find('>')));
  }
  EXPECT_EQ(shapes.size(), 4U);
}

TEST(Table, BarsStayInsideTheirCells) {
  const std::string html =
      to_html(Table{.label = "t", .columns = {{"a"}}, .rows = {{{"x", 7.0}}, {{"y", 0.25}}}});
  EXPECT_NE(html.find("width:100%"), std::string::npos);
  EXPECT_NE(html.find("width:25%"), std::string::npos);
}

}  // namespace
}  // namespace mantissa::report
