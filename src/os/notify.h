// Telling systemd how the service does, without its library.
#pragma once

#include <string_view>

namespace carat {

/// Sends `state` ("READY=1", "STOPPING=1") as a datagram to $NOTIFY_SOCKET. Nothing happens where that is not set or
/// nobody listens: the service runs all the same.
void notify_service_manager(std::string_view state);

}  // namespace carat
