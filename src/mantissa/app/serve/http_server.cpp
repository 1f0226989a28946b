#include "mantissa/app/serve/http_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <memory>
#include <new>
#include <optional>
#include <system_error>

#include "mantissa/app/serve/connection_threads.h"
#include "mantissa/app/serve/memory_reserve.h"
#include "mantissa/core/base/error_text.h"

namespace mantissa::serve {
namespace {

constexpr const char* kJson = "application/json";
constexpr std::chrono::seconds kKeepAlive(15);

/// Compares without telling by its time how many characters are equal.
bool same_key(const std::string& given, const std::string& key) {
  unsigned differ = given.size() == key.size() ? 0 : 1;
  for (std::size_t i = 0; i < given.size(); ++i)
    differ |= static_cast<unsigned>(static_cast<unsigned char>(given[i]) ^
                                    static_cast<unsigned char>(key[i % key.size()]));
  return differ == 0;
}

/// Returns the name in a Host header: without its port.
std::string name_in(const std::string& host) {
  if (host.starts_with("[")) return host.substr(1, std::min(host.find(']'), host.size()) - 1);
  return host.substr(0, host.find(':'));
}

bool is_address(const std::string& name) {
  return !name.empty() && name.find_first_not_of("0123456789.:abcdefABCDEF") == std::string::npos &&
         name.find_first_of(".:") != std::string::npos && name.find_first_of("0123456789:") == 0;
}

}  // namespace

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || (host.starts_with("127.") && is_address(host));
}

HttpServer::HttpServer(Service& service, Door door) : service_(service), door_(std::move(door)) {
  // Not SO_REUSEPORT, with which two servers would share a port.
  set_socket_options([](socket_t socket) {
    const int on = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  });
  set_tcp_nodelay(true);
  set_pre_routing_handler([this](const auto& request, auto& response) { return route(request, response); });
  for (const char* path : {"/v1/completions", "/v1/chat/completions"}) {
    Post(path, [this](const httplib::Request& request, httplib::Response& response, const Reader& reader) {
      answer(request, response, reader);
    });
  }
  set_exception_handler(
      [this](const httplib::Request&, httplib::Response& response, std::exception_ptr error) {
        try {
          std::rethrow_exception(std::move(error));
        } catch (...) {
          fail(current_request_error(), response);
        }
      });
  // Requests that httplib rejects.
  set_error_handler(Handler([this](const httplib::Request&, httplib::Response& response) {
    if (!response.body.empty()) return;
    connection().close_after();  // what follows may be the rest of the request
    response.set_header("Connection", "close");
    fail({response.status, response.status == 414 ? "the path is too long" : "the request is not valid HTTP"},
         response);
  }));
}

void HttpServer::bind() {
  constexpr int kBacklog = 1024;  // httplib's is 5, with which clients that come together wait for seconds
  errno = 0;
  int port = door_.port;
  if (port == 0) port = bind_to_any_port(door_.host);
  if (port > 0 && (door_.port == 0 || bind_to_port(door_.host, port)) && ::listen(svr_sock_, kBacklog) == 0) {
    door_.port = port;
    return;
  }
  const int error = errno;
  const std::string what =
      fmt::format("--host {} --port {}: cannot listen there: {}", door_.host, door_.port,
                  error == 0 ? "no such address" : std::generic_category().message(error));
  if (error == EMFILE || error == ENFILE) throw ResourceError("{}. Fix: raise the limit (ulimit -n)", what);
  if (error == ENOMEM || error == ENOBUFS) throw ResourceError("{}. Fix: free some memory", what);
  throw ConfigError("{}. Fix: another --port (0: any free one), or an address of this machine", what);
}

std::string HttpServer::url() const {
  const bool v6 = door_.host.find(':') != std::string::npos;
  return fmt::format("http://{}{}{}:{}", v6 ? "[" : "", door_.host, v6 ? "]" : "", door_.port);
}

void HttpServer::run(const std::stop_token& stop, const std::function<void(const std::string&)>& trouble) {
  const int error = accept_clients(stop, trouble);
  ::close(svr_sock_.exchange(INVALID_SOCKET));
  if (error == 0) return;
  throw ResourceError("{}: the system has closed the server's socket: {}. Fix: start the server again", url(),
                      std::generic_category().message(error));
}

/// Passes clients to threads of their own until `stop`. Returns errno if the socket does not work any more.
/// httplib's loop would end at the first error of accept() that it does not know.
int HttpServer::accept_clients(const std::stop_token& stop,
                               const std::function<void(const std::string&)>& trouble) {
  constexpr std::array kOfTheSocket = {EBADF, EINVAL, ENOTSOCK, EFAULT};
  constexpr std::chrono::milliseconds kPause(10);
  constexpr int kPausesUntilTold = 100;
  constexpr int kSlice = 200;  // milliseconds between looks at the end of the server
  const std::string refusal = last_words(
      503,
      fmt::format("{} connections are open, or memory or threads are short. Fix: try again later, close "
                  "some, or start the server with a larger --max-connections",
                  service_.limits().connections),
      "Retry-After: 1\r\n");
  ConnectionThreads threads(static_cast<std::size_t>(service_.limits().connections),
                            [this](int socket) { process_and_close_socket(socket); });
  const std::stop_callback wake(stop, [this] { ::shutdown(svr_sock_, SHUT_RDWR); });
  int broken = 0;
  ::fcntl(svr_sock_, F_SETFL, ::fcntl(svr_sock_, F_GETFL) | O_NONBLOCK);
  for (int failures = 0; !stop.stop_requested();) {
    pollfd listening{svr_sock_, POLLIN, 0};
    if (::poll(&listening, 1, kSlice) == 0) continue;
    const int socket = ::accept4(svr_sock_, nullptr, nullptr, SOCK_CLOEXEC);
    if (socket >= 0) {
      failures = 0;
      if (!threads.take(socket)) refuse(socket, refusal);
      continue;
    }
    const int error = errno;
    if (std::ranges::find(kOfTheSocket, error) != kOfTheSocket.end()) {
      broken = stop.stop_requested() ? 0 : error;
      break;
    }
    const bool gone = error == EAGAIN;  // the client has gone again
    if (!gone && ++failures == kPausesUntilTold && trouble)
      trouble(fmt::format("no client can connect for now: {}", std::generic_category().message(error)));
    std::this_thread::sleep_for(kPause);
  }
  stopping_ = true;
  service_.stop();
  return broken;
}

bool HttpServer::process_and_close_socket(socket_t socket) {
  Connection connection(socket, std::chrono::seconds(service_.limits().client_seconds), stopping_);
  {
    const std::lock_guard lock(mutex_);
    connections_[std::this_thread::get_id()] = &connection;
  }
  while (!stopping_ && connection.wait_for_request(kKeepAlive)) {
    MemoryReserve::refill();
    connection.begin_request();
    bool closed = false, replied = false, exhausted = false;
    try {
      replied = process_request(connection, false, closed, [&](httplib::Request& request) {
        connection.begin_body();
        // Replies are whole and plain.
        request.ranges.clear();
        request.headers.erase("Accept-Encoding");
        if (stopping_) request.headers.emplace("Connection", "close");
      });
    } catch (const std::bad_alloc&) {
      exhausted = true;
    } catch (const std::exception&) {  // of httplib itself
    }
    if (!replied) connection.apologize(exhausted);
    if (!replied || closed || connection.closes()) break;
  }
  const std::lock_guard lock(mutex_);
  connections_.erase(std::this_thread::get_id());
  return true;
}

Connection& HttpServer::connection() {
  const std::lock_guard lock(mutex_);
  return *connections_.at(std::this_thread::get_id());
}

/// Throws RequestError for a request without the key, and for one that a web page may have made a browser
/// send.
void HttpServer::check_access(const httplib::Request& request) const {
  if (!door_.api_key.empty()) {
    const std::string given = request.get_header_value("Authorization");
    constexpr std::string_view kScheme = "Bearer ";
    if (given.starts_with(kScheme) && same_key(given.substr(kScheme.size()), door_.api_key)) return;
    throw RequestError(401,
                       given.empty() ? "the request has no key. Fix: the header \"Authorization: Bearer KEY\""
                                     : "the key is not that of this server",
                       "", "invalid_api_key");
  }
  const std::string host = name_in(request.get_header_value("Host"));
  if (host.empty() || host == "localhost" || host == door_.host || is_address(host)) return;
  throw RequestError(
      403, fmt::format("the header Host names \"{}\", which is not this server. Fix: use {}", host, url()),
      "", "wrong_host");
}

httplib::Server::HandlerResponse HttpServer::route(const httplib::Request& request,
                                                   httplib::Response& response) {
  try {
    const std::optional<std::string> method = service_.method_of(request.path);
    if (request.path != "/health") check_access(request);
    if (!method) {
      throw RequestError(
          404, "there is no such path. Fix: /v1/completions, /v1/chat/completions, /v1/models or /health", "",
          "unknown_url");
    }
    const bool head = *method == "GET" && request.method == "HEAD";
    if (request.method != *method && !head) {
      response.set_header("Allow", *method);
      throw RequestError(405, fmt::format("{} takes only {}", request.path, *method), "",
                         "method_not_allowed");
    }
    if (*method == "POST") return HandlerResponse::Unhandled;
    response.set_content(service_.get(request.path), kJson);
  } catch (const RequestError& error) {
    fail(error, response);
  }
  if (request.has_header("Content-Length") || request.has_header("Transfer-Encoding")) {
    connection().close_after();  // its body is not read
    response.set_header("Connection", "close");
  }
  return HandlerResponse::Handled;
}

std::string HttpServer::body_of(const httplib::Request& request, const Reader& reader) {
  const std::size_t most = service_.limits().body_bytes;
  const auto too_large = [&] {
    return RequestError(
        413,
        fmt::format("the body has more than {} bytes. Fix: a smaller request, or start the server with "
                    "a larger --max-body",
                    most),
        "", "body_too_large");
  };
  const auto fail_unread = [&](const RequestError& error) {
    connection().close_after();
    throw error;
  };
  const std::string type = request.get_header_value("Content-Type");
  if (type.substr(0, type.find(';')) != kJson) {
    fail_unread(
        {415, "the header Content-Type: expected application/json. Fix: -H 'Content-Type: application/json'",
         "", "wrong_content_type"});
  }
  if (request.has_header("Content-Encoding"))
    fail_unread({415, "the header Content-Encoding: is not supported. Fix: send the body as it is"});
  if (request.get_header_value<std::uint64_t>("Content-Length") > most) fail_unread(too_large());
  std::string body;
  bool large = false;
  const bool whole = reader([&](const char* data, std::size_t size) {
    large = body.size() + size > most;
    if (!large) body.append(data, size);
    return !large;
  });
  if (large) fail_unread(too_large());
  if (!whole && connection().timed_out()) {
    fail_unread({408, fmt::format("the body did not arrive within {} s", service_.limits().client_seconds),
                 "", "timeout"});
  }
  if (!whole) fail_unread({400, "the body was cut short, or its chunks are malformed"});
  return body;
}

void HttpServer::answer(const httplib::Request& request, httplib::Response& response, const Reader& reader) {
  Connection& client = connection();
  try {
    const std::shared_ptr<Exchange> exchange = service_.post(request.path, body_of(request, reader));
    const Exchange::Alive alive = [&client] { return !client.client_gone(); };
    response.status = 200;
    if (!exchange->streams()) {
      const std::optional<std::string> whole = exchange->whole(alive);
      if (whole) response.set_content(*whole, kJson);
      if (!whole) client.close_after();
      return;
    }
    const auto next = [exchange, alive](std::size_t, httplib::DataSink& sink) {
      const std::optional<std::string> events = exchange->next_events(alive);
      if (events) return sink.write(events->data(), events->size());
      sink.done();
      return true;
    };
    response.set_header("Cache-Control", "no-store");
    if (request.version == "HTTP/1.0") {  // has no chunks: the stream ends with the connection
      client.close_after();
      response.set_content_provider("text/event-stream", next);
    } else {
      response.set_chunked_content_provider("text/event-stream", next);
    }
  } catch (const std::exception&) {
    fail(current_request_error(), response);
    if (client.closes()) response.set_header("Connection", "close");
  }
}

void HttpServer::fail(const RequestError& error, httplib::Response& response) {
  response.status = error.status();
  response.set_content(line_of(error.to_json()), kJson);
  if (error.status() == 401) response.set_header("WWW-Authenticate", "Bearer");
  if (error.status() == 429 || error.status() == 503) response.set_header("Retry-After", "1");
}

}  // namespace mantissa::serve
