// Token ids from files: plain text, rows with fields, and files of raw ids.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mantissa/text/rows/corpus.h"
#include "mantissa/text/rows/file_format.h"
#include "mantissa/text/tokenizer/tokenizer.h"

namespace mantissa::text {

/// Returns the type that "auto", "uint16" or "uint32" names. Throws ConfigError for another name, which
/// `where` gave.
IdType id_type_named(const std::string& name, const std::string& where);

/// Expands names and globs (`*`, `?`, `[…]`) to files in the given order; the files of one glob are sorted by
/// bytes. A file whose name equals the pattern takes precedence over the glob. A glob leaves out shards.json
/// beside the shards that it describes, and an index (.idx) beside its .bin. A name without a file stands for
/// the pair NAME.idx and NAME.bin, if it exists, as --data_file of RWKV-LM and Megatron. Throws FileError for
/// a missing file, a glob without a match, or anything that is not a regular file, and ConfigError for an
/// empty list.
std::vector<std::string> expand_files(const std::vector<std::string>& patterns);

/// Returns true if any of the files, read as read_tokens() reads them, is text that a tokenizer turns into
/// ids.
bool holds_text(const std::vector<std::string>& patterns, const std::string& format);

/// Returns true if `format`, or if that is "auto" the name of `path`, is one of rows with fields.
bool holds_rows(const std::string& path, const std::string& format);

/// Returns the ids of all files as one stream. `patterns` as for expand_files. The kinds of file_kinds.h:
///   text    The bytes of a file, unchanged. A separator precedes each file but the first.
///   jsonl   One JSON object per line with the document in the string field `text`, or in the field that
///           the format gives. A separator follows each document. Blank lines are skipped.
///   json    The same, usually as one array of objects. csv: the same, as comma-separated values.
///   tokens  Ids without separators, in the layouts of TokenFile.
///   binidx  Ids of a pair of Megatron, named by either file (binidx.h).
///   auto    By file name extension; a .bin with an .idx beside it is binidx.
/// Text and rows may be compressed; their names then end with .gz or .zst.
///
/// `vocabulary` is the number of entries of the model's embedding; every id is below it. Throws ConfigError
/// for an unknown format, and for text in which an id of the tokenizer is not below `vocabulary`. Throws
/// FileError, with file and line or position, for a file that does not match its format, and if all files
/// together contain no tokens.
Corpus read_corpus(const std::vector<std::string>& patterns, const FileFormat& format,
                   const tokenizer::Tokenizer& tokenizer, std::int64_t vocabulary);
/// Returns the same ids in memory.
std::vector<std::int32_t> read_tokens(const std::vector<std::string>& patterns, const FileFormat& format,
                                      const tokenizer::Tokenizer& tokenizer, std::int64_t vocabulary);

/// Returns the name of the file's kind: `format`, or if that is "auto" the one of the file's name. Throws
/// ConfigError for an unknown or unsupported one.
std::string format_of(const std::string& path, const std::string& format);

}  // namespace mantissa::text
