-- Charges as much of a cost as fits: the most units that one evaluation admits, found by halving. So it needs no more
-- of an algorithm than that a larger cost never fits where a smaller one does not, and works beside open holds too.
--
-- Commands: those of an evaluation, for the whole cost, and for up to 41 smaller ones if that does not fit; then those
-- of a commit.
--
-- The function is created only in calls that change counts by hand.

local up_to

if used % 128 >= 64 then
  -- The units that fit, by number of a charge.
  local most = {}

  -- Returns the function of a charge whose algorithm, or whose function beside holds, is `run`. It reports what `run`
  -- reports of the units that are charged, or of a cost of 1 that does not fit, and then the number of charged units.
  -- `together`: the charge is part of a check of several charges.
  up_to = function(run, counts_rejected, together)
    local function fits(now, times, number, cost, limit, window, parameter)
      return run(now, times, number, number, cost, 'evaluate', limit, window, parameter, false)
    end

    return function(now, times, from, to, cost, mode, limit, window, parameter, extra)
      for number = from, to do
        if mode == 'evaluate' or not together then
          local fitting, beyond, asked = 0, cost + 1, cost
          while beyond - fitting > 1 do
            if fits(now, times, number, asked, limit, window, parameter) then fitting = asked else beyond = asked end
            asked = math.floor((fitting + beyond) / 2)
          end
          most[number] = fitting
          -- A charge beside holds commits what it has evaluated last.
          fits(now, times, number, math.max(fitting, 1), limit, window, parameter)
          if mode == 'evaluate' then return fitting > 0 end
        end
        local units = most[number]
        local commits = mode
        if not together then
          -- While a check meets a ban by hand, nothing is charged or counted.
          commits, extra = units > 0 and not rare().met, counts_rejected and not rare().met
        end
        if not commits then units = 0 end
        run(now, times, number, number, math.max(units, 1), commits, limit, window, parameter, extra)
        times[#times + 1] = units
      end
    end
  end
end
