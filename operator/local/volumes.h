// Volumes of a job on one machine: folders given by the user instead of PersistentVolumeClaims.
#pragma once

#include <map>
#include <string>

#include "base/core/status.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::control {

// Rewrites the paths of spec.training (model.path, data.*, initFrom) that lie below the mountPath
// of a volume to the folder given for it, and makes relative ones absolute against `cwd`, so that
// the tasks need nothing special. `folders` maps a volume's name to a folder. INVALID_ARGUMENT
// names the field and the missing volume ("data.images: /data/x is on volume 'data': give --volume
// data=DIR"), or the folder that no volume of the job has the name of.
//
// A job without `training` has no such paths: its volumes become hostPath volumes of the folders,
// which all must be given, and the working directories of its templates become absolute.
Status resolveVolumes(const std::map<std::string, std::string>& folders, const std::string& cwd,
                      v1::TrainingJob* job);

// Name and folder of the volumes that are hostPath volumes.
std::map<std::string, std::string> volumeFolders(const v1::JobSpec& spec);

}  // namespace trainyard::control
