// A process that the shell starts, with pipes to its standard input, output and error.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace mantissa::reward {

/// The end of a pipe; -1: none.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() { close(); }
  void close();
  int number() const { return number_; }
  bool open() const { return number_ >= 0; }

 private:
  int number_;
};

/// The process leads a group of its own, so that a terminal's Ctrl-C does not reach it, and ending the group
/// ends its children.
class Child {
 public:
  /// Runs `command` by /bin/sh in the current directory, with the environment of this process and
  /// `variable` ("NAME=VALUE"). Throws ResourceError if that fails.
  Child(const std::string& command, const std::string& variable);
  /// Ends the process as end() does.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// Writes the beginning of `text`, as much as the pipe takes now, and returns the number of bytes.
  std::size_t write(std::string_view text);
  /// Append what the pipes hold now, up to some thousand bytes.
  void read_output(std::string& text) { read(output_, text); }
  void read_errors(std::string& text) { read(errors_, text); }
  /// Waits until the pipes have something to read or, if `writes`, room to write, for at most `time`.
  void wait(bool writes, std::chrono::milliseconds time) const;

  /// Return false once the process was seen to have closed its standard input, or output.
  bool reads() const { return input_.open(); }
  bool writes() const { return output_.open(); }

  /// Returns how the process ended, such as "exited with status 1", or null while it runs.
  std::optional<std::string> ended() const;

  /// Ends the process and its group, and returns the beginning of what it writes meanwhile. Its standard
  /// input is closed first, and it has `patience` to end by itself; then SIGTERM follows, and a second later
  /// SIGKILL. Its children get SIGKILL when it has ended.
  std::string end(std::chrono::milliseconds patience);

 private:
  static void read(Descriptor& end, std::string& text);
  /// Reads output until the process ends or the time is over. Returns true if it has ended.
  bool drain(std::chrono::milliseconds time, std::string& output);

  pid_t process_ = -1;  // -1: ended
  Descriptor input_, output_, errors_;
};

}  // namespace mantissa::reward
