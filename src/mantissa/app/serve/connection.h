// A client's socket with limits: on the bytes before a body, and on the time to send or take something.
#pragma once

#include <httplib.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

namespace mantissa::serve {

/// What httplib reads requests from and writes replies to. Its own sockets limit only the time of single
/// reads, so a client could send one byte at a time forever.
class Connection : public httplib::Stream {
 public:
  /// Takes the socket. `stopping` ends waits; it must outlive the object.
  Connection(int socket, std::chrono::seconds patience, const std::atomic<bool>& stopping);
  /// Sends what remains, and reads what the client still sends for a moment: a socket that is closed with
  /// unread bytes destroys the reply.
  ~Connection() override;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// Returns true if bytes arrive before `most` passes.
  bool wait_for_request(std::chrono::seconds most);
  /// Begins to count the bytes and the time of a request.
  void begin_request();
  /// The request's headers were read: the body follows.
  void begin_body() { in_body_ = true; }
  /// Returns true if the client has closed its side, or the connection failed.
  bool client_gone() const;
  /// Returns true if the client was too slow with its request.
  bool timed_out() const { return timed_out_; }
  /// No request follows this one.
  void close_after() { closes_ = true; }
  bool closes() const { return closes_; }
  /// Replies to a request that could not be read, unless a reply was begun. `exhausted`: for lack of memory.
  void apologize(bool exhausted = false);

  bool is_readable() const override { return begin_ < end_; }
  bool is_writable() const override { return !failed_; }
  ssize_t read(char* data, std::size_t size) override;
  ssize_t write(const char* data, std::size_t size) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  socket_t socket() const override { return socket_; }

 private:
  using Clock = std::chrono::steady_clock;
  bool wait(short events, Clock::time_point deadline) const;

  int socket_;
  std::chrono::seconds patience_;
  const std::atomic<bool>& stopping_;
  Clock::time_point deadline_;  // of the request
  std::array<char, 16384> buffer_{};
  std::size_t begin_ = 0, end_ = 0;  // of the bytes in the buffer
  std::size_t header_bytes_ = 0, written_ = 0;
  bool in_body_ = false, timed_out_ = false, too_long_ = false, closes_ = false, failed_ = false;
};

/// Returns the bytes of a reply with an error and `headers` ("Retry-After: 1\r\n"), after which the
/// connection closes.
std::string last_words(int status, const std::string& message, std::string_view headers = {});

/// Sends `reply` without waiting, and closes the socket.
void refuse(int socket, const std::string& reply);

}  // namespace mantissa::serve
