// The record of a leader in a Lease object.
#pragma once

#include <memory>
#include <string>

#include "operator/kube/client.h"
#include "operator/lease/lease.h"

namespace trainyard::control {

// Both references outlive it; give it a transport of its own.
std::unique_ptr<LeaseStore> makeLeaseStore(HttpTransport& transport, const Clock& clock,
                                           std::string ns, std::string name);

// Pure: the Lease object of a record, and back. Times have microseconds, as MicroTime.
nlohmann::json toLease(const LeaseRecord& record, const std::string& ns, const std::string& name);
StatusOr<LeaseRecord> fromLease(const nlohmann::json& lease);

}  // namespace trainyard::control
