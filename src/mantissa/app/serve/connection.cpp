#include "mantissa/app/serve/connection.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "mantissa/app/serve/reply.h"
#include "mantissa/app/serve/request_error.h"

namespace mantissa::serve {
namespace {

constexpr std::size_t kHeaderBytes = std::size_t{64} << 10U;  // of a request line and headers
constexpr std::chrono::milliseconds kSlice(100);              // between looks at the end of the server

}  // namespace

Connection::Connection(int socket, std::chrono::seconds patience, const std::atomic<bool>& stopping)
    : socket_(socket), patience_(patience), stopping_(stopping) {
  begin_request();
}

Connection::~Connection() {
  constexpr std::size_t kMost = std::size_t{64} << 20U;
  ::shutdown(socket_, SHUT_WR);
  const Clock::time_point deadline = Clock::now() + std::min(patience_, std::chrono::seconds(2));
  for (std::size_t read = 0; !failed_ && read < kMost && wait(POLLIN, deadline);) {
    const ssize_t n = ::recv(socket_, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (n <= 0) break;
    read += static_cast<std::size_t>(n);
  }
  ::close(socket_);
}

/// Returns true if the socket has one of `events` before the deadline and the end of the server.
bool Connection::wait(short events, Clock::time_point deadline) const {
  for (bool ends = false;;) {
    // A server that ends waits less for a client that does not read.
    if (stopping_ && !std::exchange(ends, true))
      deadline = std::min(deadline, Clock::now() + std::chrono::seconds(1));
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return false;
    pollfd one{socket_, events, 0};
    const int ready = ::poll(&one, 1, static_cast<int>(std::min(left, kSlice).count()) + 1);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
    if (stopping_ && events == POLLIN) return false;
  }
}

bool Connection::wait_for_request(std::chrono::seconds most) {
  return begin_ < end_ || wait(POLLIN, Clock::now() + most);
}

void Connection::begin_request() {
  deadline_ = Clock::now() + patience_;
  header_bytes_ = written_ = 0;
  in_body_ = timed_out_ = too_long_ = false;
}

bool Connection::client_gone() const {
  if (failed_) return true;
  pollfd one{socket_, POLLIN | POLLRDHUP, 0};
  return ::poll(&one, 1, 0) > 0 && (one.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

void Connection::apologize(bool exhausted) {
  if (written_ > 0 || failed_) return;
  std::string reply;
  if (exhausted) {
    reply = last_words(503, "the server has too little memory for the request. Fix: try again later",
                       "Retry-After: 1\r\n");
  } else if (timed_out_) {
    reply = last_words(408, fmt::format("the request did not arrive within {} s", patience_.count()));
  } else if (too_long_) {
    reply = last_words(400, fmt::format("the headers have more than {} bytes", kHeaderBytes));
  } else if (!stopping_ && header_bytes_ > 0) {
    reply = last_words(400, "the request is not HTTP, or was cut short");
  }
  write(reply.data(), reply.size());
}

ssize_t Connection::read(char* data, std::size_t size) {
  if (begin_ == end_) {
    if (!wait(POLLIN, deadline_)) {
      timed_out_ = Clock::now() >= deadline_;
      closes_ = true;
      return -1;
    }
    const ssize_t n = ::recv(socket_, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (n <= 0) return n;
    begin_ = 0;
    end_ = static_cast<std::size_t>(n);
  }
  const std::size_t n = std::min(size, end_ - begin_);
  if (!in_body_ && (header_bytes_ += n) > kHeaderBytes) {
    too_long_ = closes_ = true;
    return -1;
  }
  std::memcpy(data, buffer_.data() + begin_, n);
  begin_ += n;
  return static_cast<ssize_t>(n);
}

ssize_t Connection::write(const char* data, std::size_t size) {
  const Clock::time_point deadline = Clock::now() + patience_;
  for (std::size_t sent = 0; sent < size;) {
    const bool ready = wait(POLLOUT, deadline);
    const ssize_t n = ready ? ::send(socket_, data + sent, size - sent, MSG_DONTWAIT | MSG_NOSIGNAL) : -1;
    if (n < 0 && ready && (errno == EAGAIN || errno == EINTR)) continue;
    if (n <= 0) {
      failed_ = true;
      return -1;
    }
    sent += static_cast<std::size_t>(n);
    written_ += static_cast<std::size_t>(n);
  }
  return static_cast<ssize_t>(size);
}

// The addresses are of no use here.
void Connection::get_remote_ip_and_port(std::string& ip, int& port) const {
  ip.clear();
  port = 0;
}

void Connection::get_local_ip_and_port(std::string& ip, int& port) const {
  ip.clear();
  port = 0;
}

std::string last_words(int status, const std::string& message, std::string_view headers) {
  const std::string body = line_of(RequestError(status, message).to_json());
  return fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{}Connection: close\r\n\r\n{}",
      status, reason_of(status), body.size(), headers, body);
}

void refuse(int socket, const std::string& reply) {
  constexpr int kReads = 16;
  ::send(socket, reply.data(), reply.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  ::shutdown(socket, SHUT_WR);
  std::array<char, 4096> buffer{};
  for (int i = 0; i<kReads&& ::recv(socket, buffer.data(), buffer.size(), MSG_DONTWAIT)> 0; ++i) {
  }
  ::close(socket);
}

}  // namespace mantissa::serve
