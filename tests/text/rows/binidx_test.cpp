#include "mantissa/text/rows/binidx.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "mantissa/core/base/error.h"
#include "mantissa/text/rows/sources.h"
#include "text/rows/binidx_files.h"
#include "text/rows/temp_files.h"

namespace mantissa::text {
namespace {

using Ids = std::vector<std::int32_t>;
using Lengths = std::vector<std::int64_t>;

class BinidxData : public ::testing::Test {
 protected:
  /// Writes a pair and returns the name of its .bin.
  std::string write(const Binidx& data, const std::string& name = "m") const {
    files.write(name + ".idx", data.idx());
    return files.write(name + ".bin", data.bin());
  }
  Ids read(const std::vector<std::string>& patterns, const std::string& format = "auto",
           std::int64_t vocabulary = 65536) const {
    return read_tokens(patterns, format, *tokenizer, vocabulary);
  }
  Lengths documents(const std::string& path, std::optional<std::int32_t> separator = std::nullopt) const {
    Corpus corpus = read_corpus({path}, "auto", *tokenizer, 65536);
    corpus.split_token_files(separator);
    return corpus.document_lengths();
  }
  template <class E = FileError>
  std::string refused(const Binidx& data, std::int64_t vocabulary = 65536) const {
    const std::string path = write(data, "bad");
    return error_of<E>([&] { read({path}, "auto", vocabulary); });
  }

  TempFiles files;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer = tokenizer::make_tokenizer("byte");
  const Binidx three = Binidx({{7, 65535, 0}, {1, 0}, {2, 3, 4, 0}});
  const Ids stream = {7, 65535, 0, 1, 0, 2, 3, 4, 0};
};

TEST_F(BinidxData, IsOneStreamInTheOrderOfItsItems) {
  const std::string bin = write(three);
  EXPECT_EQ(read({bin}), stream);
  EXPECT_EQ(read({files.path("m.idx")}), stream);
  EXPECT_EQ(read({bin}, "binidx"), stream);
  // An explicit format reads the ids as they are: two of one byte as one of two.
  EXPECT_EQ(read({write(Binidx({{1, 2}}, 1, 1), "n")}, "tokens", 1000), (Ids{513}));
}

TEST_F(BinidxData, IsNamedByEitherFileOrWithoutAnExtension) {
  write(three);
  write(three, "m.v2");
  EXPECT_EQ(read({files.path("m")}), stream);
  EXPECT_EQ(read({files.path("m.v2")}), stream);
  EXPECT_EQ(expand_files({files.path("m.*")}),
            (std::vector<std::string>{files.path("m.bin"), files.path("m.v2.bin")}))
      << "an index is read with its ids, not as ids";
  EXPECT_EQ(expand_files({files.path("m.i*")}), (std::vector<std::string>{files.path("m.idx")}));
}

TEST_F(BinidxData, HasIdsOfTheTypeThatTheIndexNames) {
  struct Case {
    int code, width;
    std::int64_t largest;
  };
  for (const Case& c : {Case{1, 1, 255}, Case{2, 1, 127}, Case{3, 2, 32767}, Case{4, 4, 2147483646},
                        Case{5, 8, 2147483646}, Case{8, 2, 65535}}) {
    SCOPED_TRACE(c.code);
    const std::string path = write(Binidx({{c.largest, 3, 0}}, c.code, c.width));
    EXPECT_EQ(read({path}, "auto", 2147483647), (Ids{static_cast<std::int32_t>(c.largest), 3, 0}));
  }
}

TEST_F(BinidxData, HasTheDocumentsOfItsIndex) {
  EXPECT_EQ(documents(write(three)), (Lengths{3, 2, 4}));
  Binidx two = three;  // the first document has two items
  two.bounds = {0, 2, 3};
  two.bound_count = 3;
  EXPECT_EQ(documents(write(two)), (Lengths{5, 4}));
  Binidx none = three;
  none.bounds = {};
  none.bound_count = 0;
  EXPECT_EQ(documents(write(none)), (Lengths{3, 2, 4})) << "without bounds, an item is a document";
  EXPECT_EQ(documents(write(Binidx({{}, {1, 0}, {}, {5}, {}}))), (Lengths{2, 1})) << "none is empty";
}

TEST_F(BinidxData, IsDividedAfterASeparatorThatIsGiven) {
  EXPECT_EQ(documents(write(Binidx({{1, 0, 2, 2, 0, 3}})), 0), (Lengths{2, 3, 1}));
}

TEST_F(BinidxData, JoinsOtherFiles) {
  const std::string bin = write(three), other = write(Binidx({{9}, {8, 0}}), "o");
  EXPECT_EQ(read({bin, other, bin}).size(), 21U);
  Corpus corpus = read_corpus({bin, other}, "auto", *tokenizer, 65536);
  corpus.split_token_files(std::nullopt);
  EXPECT_EQ(corpus.document_lengths(), (Lengths{3, 2, 4, 1, 2}));
}

TEST_F(BinidxData, MayHaveMoreItemsThanAReadBuffer) {
  std::vector<std::vector<std::int64_t>> items;
  for (std::int64_t i = 0; i < 20'000; ++i) items.emplace_back(static_cast<std::size_t>(i % 3 + 1), i);
  const std::string path = write(Binidx(items));
  EXPECT_EQ(documents(path).size(), 20'000U);
  const Ids ids = read({path});
  EXPECT_EQ(ids.size(), 39'999U);
  EXPECT_EQ(ids.back(), 19'999);
}

TEST_F(BinidxData, RefusesFloatingPointIdsByTheirCode) {
  for (const int code : {6, 7})
    EXPECT_TRUE(has(refused<DtypeError>(Binidx({{1, 2}}, code, 8)),
                    fmt::format("got floating-point numbers (dtype code {})", code)));
  for (const int code : {0, 9, 255})
    EXPECT_TRUE(has(refused(Binidx({{1, 2}}, code)), fmt::format("uint16), got {}. Fix: ", code)));
}

TEST_F(BinidxData, RefusesIdsOutsideTheVocabularyWithTheirPosition) {
  EXPECT_TRUE(has(refused(three, 1000),
                  "expected ids from 0 to 999 (the vocabulary has 1000 entries), got "
                  "65535 at position 1 (as uint16 of its index)"));
  EXPECT_TRUE(has(refused(Binidx({{1}, {2, -3}}, 3)), "got -3 at position 2 (as int16"));
  EXPECT_TRUE(has(refused(Binidx({{-1}}, 2, 1)), "got -1 at position 0 (as int8"));
  EXPECT_TRUE(
      has(refused(Binidx({{std::int64_t{1} << 40}}, 5, 8)), "got 1099511627776 at position 0 (as int64"));
}

TEST_F(BinidxData, RefusesADamagedIndexWithThePlace) {
  const auto with = [&](auto change) {
    Binidx data = three;
    change(data);
    const std::string message = refused(data);
    EXPECT_TRUE(has(message, files.path("bad.idx")));
    EXPECT_TRUE(has(message, ". Fix: "));
    return message;
  };
  EXPECT_TRUE(has(with([](Binidx& b) { b.magic[0] = 'm'; }), "begins with \"MMIDIDX\", got another file"));
  EXPECT_TRUE(has(with([](Binidx& b) { b.version = 2; }), "version 1, got version 2"));
  EXPECT_TRUE(has(with([](Binidx& b) { ++b.item_count; }),
                  "the size that its header states (4 items and 4 document bounds), got 102 bytes"));
  // Counts whose sizes overflow 64 bits, and such that 12·items + 8·bounds is the right number modulo 2^64.
  for (const std::int64_t count : {std::int64_t{-1}, std::int64_t{1} << 62, std::int64_t{1} << 61})
    with([&](Binidx& b) { b.item_count = b.item_count ^ count; });
  with([&](Binidx& b) { b.bound_count = b.bound_count | std::int64_t{1} << 61; });
  EXPECT_TRUE(has(with([](Binidx& b) { b.sizes[1] = -2; }), "size of at least 0 for item 1, got -2"));
  EXPECT_TRUE(has(with([](Binidx& b) { b.places[2] = 4; }),
                  "item 2 at byte 10 of the .bin, after the item "
                  "before it, got byte 4"));
  EXPECT_TRUE(has(with([](Binidx& b) { b.places[2] = -1; }), "got byte -1"));
  EXPECT_TRUE(has(with([](Binidx& b) { b.bounds[2] = 4; }), "document bound 2 from 1 to 3 (items), got 4"));
  EXPECT_TRUE(has(with([](Binidx& b) { b.bounds[1] = -1; }), "document bound 1 from 0 to 3 (items), got -1"));
  EXPECT_TRUE(has(with([](Binidx& b) { b.documents.pop_back(); }),
                  "expected a .bin of 18 bytes (9 ids of 2 bytes), got 10 bytes"));
}

TEST_F(BinidxData, RefusesAnIndexOfAnyOtherLength) {
  const std::string path = write(three), idx = three.idx();
  for (std::size_t length = 0; length < idx.size(); ++length) {
    files.write("m.idx", idx.substr(0, length));
    EXPECT_TRUE(has(error_of<FileError>([&] { read({path}); }), "m.idx")) << length;
  }
  files.write("m.idx", idx + " ");
  EXPECT_TRUE(has(error_of<FileError>([&] { read({path}); }), "got 103 bytes"));
}

TEST_F(BinidxData, RefusesOneFileWithoutTheOther) {
  write(three);
  std::filesystem::remove(files.path("m.bin"));
  const auto read_it = [&](const std::string& name, const std::string& format) {
    return error_of<FileError>([&] { read({files.path(name)}, format); });
  };
  EXPECT_TRUE(has(read_it("m.idx", "auto"), "expected \"m.bin\" beside it"));
  files.write("n.bin", "ab");
  EXPECT_TRUE(has(read_it("n.bin", "binidx"), "expected \"n.idx\" beside it"));
  EXPECT_TRUE(has(read_it("k", "binidx"), "file not found"));
  EXPECT_TRUE(has(read_it("m", "binidx"), "m.bin\" beside it"));
  EXPECT_TRUE(has(read_it("n", "binidx"), "file not found: \""));
}

}  // namespace
}  // namespace mantissa::text
