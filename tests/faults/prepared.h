// A command, the folder before it, and its result on a machine without faults.
#pragma once

#include <algorithm>
#include <string>

#include "faults/commands.h"
#include "faults/snapshot.h"

namespace mantissa::faults {

class Prepared {
 public:
  explicit Prepared(const Command& command) : command_(command) {}

  /// Prepares the folder, and runs the command once.
  void prepare() {
    ASSERT_NO_FATAL_FAILURE(faults::prepare(machine, command_));
    fs::rename(machine.work(), machine.root() / "before");
    before_ = snapshot(machine.root() / "before");
    restore();
    const Ran whole = machine.run(with_options(command_.run));
    ASSERT_EQ(whole.code, 0) << whole.err;
    counts_ = whole.counts;
    printed_ = whole.out;
    const Snapshot after = snapshot(machine.work());
    results_ = results(after, command_.outputs);
    ASSERT_EQ(foreign_difference(before_, after, command_.outputs), "") << "without a fault";
  }

  /// Brings the folder to its state before the command.
  void restore() const {
    fs::remove_all(machine.work());
    fs::copy(machine.root() / "before", machine.work(),
             fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  }

  /// Runs the command again, as a user would continue it. Returns what is wrong, if anything is. `ended`
  /// receives how that command ended.
  std::string continued(Ran* ended = nullptr) const {
    std::string wrong;
    const Ran again = machine.run(with_options(command_.again));
    if (ended != nullptr) *ended = again;
    if (again.hung || again.signal != 0 || again.code != 0)
      return fmt::format("does not continue: exit {}, signal {}: {}", again.code, again.signal, again.err);
    if (command_.prints && again.out != printed_) wrong = "prints " + again.out;
    const Snapshot after = snapshot(machine.work());
    if (wrong.empty()) wrong = difference(results_, results(after, command_.outputs));
    if (wrong.empty()) wrong = foreign_difference(before_, after, command_.outputs);
    return wrong.empty() ? "" : "after it was continued, " + wrong;
  }

  const Command& command() const { return command_; }
  const Counts& counts() const { return counts_; }
  const Snapshot& before() const { return before_; }
  const Snapshot& expected() const { return results_; }
  const std::string& printed() const { return printed_; }

  Machine machine;

 private:
  const Command& command_;
  Counts counts_;
  Snapshot before_, results_;
  std::string printed_;
};

}  // namespace mantissa::faults
