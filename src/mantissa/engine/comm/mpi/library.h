// What the shared library for one implementation of MPI offers to the program (src/mantissa_mpi). Types of C,
// so that neither needs the headers of the other.
#pragma once

#include <cstddef>

extern "C" {

/// Raised when a member changes.
enum { kMantissaMpiVersion = 1 };

/// Messages on two channels do not meet: those of operations and those of the end.
enum MantissaMpiChannel { kMantissaMpiWork = 0, kMantissaMpiEnd = 1 };

struct MantissaMpi {
  int version;
  /// Joins the other processes that the launcher started. Returns null, or why it could not.
  const char* (*open)(int* rank, int* size, int* local_size);
  /// Returns the name of a rank's machine.
  const char* (*host)(int rank);
  /// Start a message. Return null if MPI refuses.
  void* (*send)(const void* bytes, std::size_t count, int to, int channel);
  void* (*receive)(void* bytes, std::size_t count, int from, int channel);
  /// Returns 1, and releases the request, when it is complete; 0 before; -1 if it failed.
  int (*test)(void* request);
  /// Returns what MPI says of the last failure.
  const char* (*error)();
  /// Leaves the others in order. All must call it.
  void (*close)();
  /// Ends all processes with this exit code.
  void (*end_all)(int code);
};

/// The library's only symbol.
const struct MantissaMpi* mantissa_mpi();
}
