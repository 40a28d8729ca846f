-- A row is an event and no row that waits in the transaction that inserts it, or is left as it is.
declare
    adopt_pending boolean;
    adopt_still boolean;
begin
    select adopted.pending into adopt_pending from {emit_one}({ids}) as adopted;
    if not found then
        raise exception using
            errcode = 'object_not_in_prerequisite_state',
            message = {vanished};
    end if;
    if adopt_pending then
        select {mark_one}({ids}) into adopt_still;
        if adopt_still is distinct from false then
            raise exception using errcode = 'object_not_in_prerequisite_state', message = {still};
        end if;
    end if;
    return null;
{handler}end
