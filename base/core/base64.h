// RFC 4648's base64, with the standard alphabet and padding.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace trainyard {

std::string toBase64(std::string_view bytes);
// Nothing for anything but whole base64; line breaks and spaces are passed over.
std::optional<std::string> fromBase64(std::string_view text);

}  // namespace trainyard
