// The endpoints over HTTP.
#pragma once

#include <httplib.h>

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

#include "mantissa/app/serve/connection.h"
#include "mantissa/app/serve/request_error.h"
#include "mantissa/app/serve/service.h"

namespace mantissa::serve {

/// Where a server listens, and who may use it.
struct Door {
  std::string host = "127.0.0.1";
  int port = 8080;      // 0: any free one
  std::string api_key;  // that requests must have; empty: none
};

/// Returns true if only programs of this machine reach `host`.
bool is_loopback(const std::string& host);

class HttpServer : private httplib::Server {
 public:
  /// `service` must outlive the server.
  HttpServer(Service& service, Door door);

  /// Binds the address. Throws ConfigError with the system's reason.
  void bind();
  /// Returns "http://127.0.0.1:8080".
  std::string url() const;
  /// Serves until `stop`; then requests in work get an error, and all connections close. Tells by `trouble`
  /// that no client can connect for now, and why; they wait meanwhile. Throws ResourceError if the system has
  /// closed the server's socket.
  void run(const std::stop_token& stop, const std::function<void(const std::string&)>& trouble = {});

 private:
  using Reader = httplib::ContentReader;

  int accept_clients(const std::stop_token& stop, const std::function<void(const std::string&)>& trouble);
  bool process_and_close_socket(socket_t socket) override;
  Connection& connection();
  void check_access(const httplib::Request& request) const;
  HandlerResponse route(const httplib::Request& request, httplib::Response& response);
  std::string body_of(const httplib::Request& request, const Reader& reader);
  void answer(const httplib::Request& request, httplib::Response& response, const Reader& reader);
  void fail(const RequestError& error, httplib::Response& response);

  Service& service_;
  Door door_;
  std::atomic<bool> stopping_ = false;
  std::mutex mutex_;
  std::map<std::thread::id, Connection*> connections_;  // of the threads
};

}  // namespace mantissa::serve
