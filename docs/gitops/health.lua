-- Argo CD health of a specfleet.dev SpeculativeDeployment: Ready and Stalled, of the present generation only.
local health = {status = "Progressing", message = "not seen by specfleet yet"}
local status = obj.status
if status == nil or status.conditions == nil then
  return health
end
if status.observedGeneration ~= obj.metadata.generation then
  health.message = "specfleet has not seen the last change yet"
  return health
end

local found = {}
for _, condition in ipairs(status.conditions) do
  found[condition.type] = condition
end

local function says(condition)
  local message = condition.message
  if message == nil or message == "" then
    return condition.reason
  end
  return condition.reason .. ": " .. message
end

if found.Stalled ~= nil and found.Stalled.status == "True" then
  return {status = "Degraded", message = says(found.Stalled)}
end
if found.Ready ~= nil and found.Ready.status == "True" then
  local message = says(found.Ready)
  if status.phase ~= nil then
    message = status.phase .. "; " .. message
  end
  return {status = "Healthy", message = message}
end
if found.Ready ~= nil then
  health.message = says(found.Ready)
end
return health
