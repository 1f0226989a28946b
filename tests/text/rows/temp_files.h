// A temporary folder for a test, and the messages of expected errors.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace mantissa::text {

class TempFiles {
 public:
  TempFiles() {
    std::string pattern = (std::filesystem::temp_directory_path() / "mantissa-text-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  TempFiles(const TempFiles&) = delete;
  TempFiles& operator=(const TempFiles&) = delete;
  ~TempFiles() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  /// Writes a file and returns its path.
  std::string write(const std::string& name, std::string_view content) const {
    std::ofstream stream(path(name), std::ios::binary);
    stream.write(content.data(), static_cast<std::streamsize>(content.size()));
    return path(name);
  }

 private:
  std::filesystem::path folder_;
};

/// Returns the message of the `ErrorType` that `call` throws. Fails the test and returns "" if it throws
/// none.
template <class ErrorType, class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const ErrorType& error) {
    return error.what();
  }
  ADD_FAILURE() << "no error of the expected type was thrown";
  return {};
}

/// True if `message` contains `part`; reports both otherwise.
inline ::testing::AssertionResult has(const std::string& message, std::string_view part) {
  if (message.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << '"' << message << "\" does not contain \"" << part << '"';
}

}  // namespace mantissa::text
