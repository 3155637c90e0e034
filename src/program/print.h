// Parts of programs as text. message_buffers: buffers are the messages of a group, as in send_recv programs.
#pragma once

#include <string>
#include <vector>

#include "program/program.h"

namespace muster {

std::string ref_text(const Ref& r, bool message_buffers);
std::string refs_text(const std::vector<Ref>& refs, const char* separator, bool message_buffers);
std::string step_text(const Step& s, bool message_buffers);

}  // namespace muster
