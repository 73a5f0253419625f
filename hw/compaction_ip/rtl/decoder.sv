// Turns the words of an input's blocks into records: keys in slots for the merger, values in a queue.
//
// A window of two words (`near` holds the byte at `lane`, `far` the next eight) and one rotator give any eight bytes
// of the stream, turned to the lanes where they are wanted. Per record:
//   HEAD   the header's bytes are taken out of the window
//   PARSE  shared, unshared and value length; the limits are checked
//   WORD   the user key's words, one per cycle: shared bytes copied from the slot of the key before, the rest from
//          the stream, zeros behind the end
//   TRAIL  sequence and kind
//   VALUE  eight bytes per cycle
// A key word in a slot is 68 bits: the bytes, first byte uppermost, and how many of them belong to the key (9: all,
// and more words follow), so that plain unsigned comparison of successive words orders user keys. The trailer follows
// them, inverted, so that newer versions come first. There are two slots: one being merged, one being filled.
//
// A key may share bytes with the trailer of the key before it ("ab" and its trailer, then "ab\x01..."): rare, legal,
// and done by an extra cycle per word in which the old trailer is turned into place (EXTEND).
module decoder (
    input  logic        clk,
    input  logic        reset,
    // the input's words
    input  logic        in_valid,
    input  logic [63:0] in_data,
    output logic        in_pop,
    // the oldest record's key
    output logic        key_ready,
    output logic        exhausted,
    input  logic [ 3:0] key_index,
    output logic [67:0] key_word,
    output logic [20:0] value_length,
    input  logic        key_pop,
    // values
    input  logic        value_full,
    output logic        value_write,
    output logic [63:0] value_data,
    // status
    output logic        record_found,
    output logic        moving,
    output logic        error_valid,
    output logic [ 3:0] error_code
);
  localparam logic [3:0] ERROR_KEY = 4'd7, ERROR_ENTRY = 4'd8;

  localparam logic [3:0] OPEN = 4'd0, FILL = 4'd1, HEAD = 4'd2, PARSE = 4'd3, EXTEND = 4'd4, WORD = 4'd5, TRAIL = 4'd6,
      VALUE = 4'd7, SKIP = 4'd8, DONE = 4'd9, FAIL = 4'd10;
  logic [3:0] state;

  // The block: words not yet taken from the queue, entry bytes not yet decoded.
  logic [21:0] words_left;
  logic [23:0] entries_left;
  logic [63:0] near, far;
  logic near_valid, far_valid;
  logic [2:0] lane;

  // The record at hand and the key before it.
  logic [39:0] header;
  logic [6:0] shared, user_length, before_length;
  logic has_before;
  logic [20:0] value_bytes, value_left;
  logic [21:0] entry_bytes;
  logic check_entry, key_bad, entry_bad;
  logic [63:0] trailer, extension;
  logic reaches, turned_in, in_trail;
  logic [2:0] index;
  logic [2:0] turn;
  logic [7:0] shared_left, user_left, before_left;
  // The same, of the word at hand: 0 to 8. Kept beside the sums so that no sum lies on the way of the window.
  logic [3:0] shared_here, user_here, before_here;

  // Slots.
  logic [67:0] slots[32];
  logic [1:0] slot_ready;
  logic fill_slot, read_slot;
  logic [20:0] slot_value[2];
  logic slot_write;
  logic [67:0] slot_data;
  logic [3:0] slot_index;
  logic [63:0] before_word;

  // ---- The window: eight bytes from `lane` on, turned so that stream byte `lane` lands where it is wanted.
  logic [63:0] mixed, turned, source;
  logic [2:0] amount;
  logic from_trailer;
  assign from_trailer = state == EXTEND;
  always_comb begin
    for (int j = 0; j < 8; j++)
      mixed[8*j+:8] = from_trailer ? trailer[8*j+:8] : 3'(j) < lane ? far[8*j+:8] : near[8*j+:8];
  end
  byte_rotate turn_window (.data(mixed), .amount(amount), .result(turned));

  // ---- How many bytes the step at hand takes from the stream: known beforehand, in `take_here`, but for headers.
  logic step, advance;
  logic [3:0] taken;
  logic [3:0] take_here, take_first, take_next;
  logic [3:0] lane_after;
  logic window_ready;

  assign window_ready = near_valid && far_valid;

  logic [2:0] header_bytes;
  logic header_bad, value_long;
  logic [20:0] header_value;
  always_comb begin
    header_bad = header[7] || header[15];
    value_long = header[23] && header[31] && header[39];
    header_value = {header[38:32], header[30:24], header[22:16]};
    header_bytes = 3'd5;
    if (!header[23]) begin
      header_value[20:7] = 14'd0;
      header_bytes = 3'd3;
    end else if (!header[31]) begin
      header_value[20:14] = 7'd0;
      header_bytes = 3'd4;
    end
  end

  logic [7:0] key_length, key_length_before;
  assign key_length = {1'b0, header[6:0]} + {1'b0, header[14:8]};

  // A key that ends within what it shares, and is shorter than the one before, would come before it.
  logic lengths_bad;
  assign lengths_bad = header_bad || key_length < 8'd8 || key_length > 8'd72 || {1'b0, header[6:0]} > key_length_before
      || (header[14:8] < 7'd8 && key_length_before > key_length);

  // How much of a length lies in the first word of it, and in the word after the one at hand.
  function automatic [3:0] in_first(input [7:0] length);
    in_first = length > 8'd8 ? 4'd8 : length[3:0];
  endfunction
  function automatic [3:0] in_next(input [7:0] length);
    in_next = length > 8'd15 ? 4'd8 : length > 8'd8 ? {1'b0, length[2:0]} : 4'd0;
  endfunction

  logic slot_free;
  assign slot_free = !slot_ready[fill_slot];
  always_comb begin
    step   = 1'b0;
    taken  = take_here;
    amount = lane;
    unique case (state)
      PARSE: begin
        step  = window_ready;
        taken = {1'b0, header_bytes};
      end
      EXTEND: amount = turn;
      WORD: begin
        step   = window_ready && slot_free && (!reaches || turned_in);
        amount = lane - shared_here[2:0];
      end
      TRAIL: begin
        step   = window_ready && slot_free && (!reaches || turned_in);
        amount = lane - shared_here[2:0];
      end
      VALUE: step = window_ready && !value_full;
      default: ;
    endcase
  end
  assign lane_after = {1'b0, lane} + taken;
  assign advance = step && lane_after[3];

  // Of the first word: what neither the shared bytes nor the end of the key leave out. Of the next: likewise.
  always_comb begin
    take_first = 4'd8 - {1'b0, header[2:0]};
    if (header[14:11] == 4'd1 && {1'b0, header[10:8]} < take_first) take_first = {1'b0, header[10:8]};
    if (header[6:3] != 4'd0 || header[14:11] == 4'd0) take_first = 4'd0;
  end
  assign take_next = in_next(user_left) > in_next(shared_left) ? in_next(user_left) - in_next(shared_left) : 4'd0;

  // ---- Key words.
  logic [7:0] keep, behind;
  logic [3:0] trailer_kept;
  assign trailer_kept = shared > user_length ? 4'(shared - user_length) : 4'd0;
  always_comb begin
    source = reaches ? extension : before_word;
    for (int j = 0; j < 8; j++) begin
      keep[j] = 4'(j) < (state == EXTEND ? before_here : shared_here);
      behind[j] = state != TRAIL && 4'(j) >= user_here;
    end
  end

  logic [63:0] built;
  always_comb begin
    for (int j = 0; j < 8; j++)
      built[8*j+:8] = behind[j] ? 8'd0 : keep[j] ? source[8*j+:8] : turned[8*j+:8];
  end
  always_comb begin
    for (int j = 0; j < 8; j++) slot_data[4+8*j+:8] = state == TRAIL ? ~built[8*j+:8] : built[8*(7-j)+:8];
    slot_data[3:0] = state == TRAIL ? 4'd0 : user_left > 8'd8 ? 4'd9 : user_left[3:0];
  end
  assign slot_write = step && (state == WORD || state == TRAIL);
  assign slot_index = {1'b0, index} + {3'b0, state == TRAIL};
  always_ff @(posedge clk) if (slot_write) slots[{fill_slot, slot_index}] <= slot_data;
  assign key_word = slots[{read_slot, key_index}];
  always_comb for (int j = 0; j < 8; j++) before_word[8*j+:8] = slots[{!fill_slot, 1'b0, index}][4+8*(7-j)+:8];

  assign key_ready = slot_ready[read_slot];
  assign value_length = slot_value[read_slot];
  assign value_write = step && state == VALUE;
  assign value_data = turned;
  assign record_found = step && state == TRAIL;
  assign exhausted = state == DONE && slot_ready == 2'b00;

  // ---- Words from the queue: commands when a block opens, then the window's refill, then what nobody reads.
  logic refill;
  assign refill = (advance || !near_valid || !far_valid) && state != OPEN && state != SKIP && words_left != 22'd0;
  assign in_pop = in_valid && (state == OPEN || (state == SKIP ? words_left != 22'd0 : refill && state != FAIL && state != DONE));
  assign moving = in_pop;

  assign error_valid = state == FAIL;

  always_ff @(posedge clk) begin
    if (reset) begin
      state       <= OPEN;
      slot_ready  <= 2'b00;
      fill_slot   <= 1'b0;
      read_slot   <= 1'b0;
      near_valid  <= 1'b0;
      far_valid   <= 1'b0;
      check_entry <= 1'b0;
      key_bad     <= 1'b0;
      entry_bad   <= 1'b0;
      error_code  <= 4'd0;
    end else begin
      // The window moves by a word or fills a gap.
      if (state == OPEN || state == SKIP) begin
        near_valid <= 1'b0;
        far_valid  <= 1'b0;
      end else if (advance || !near_valid) begin
        near       <= far;
        near_valid <= far_valid;
        far        <= in_data;
        far_valid  <= in_pop;
      end else if (!far_valid) begin
        far       <= in_data;
        far_valid <= in_pop;
      end
      if (in_pop && state != OPEN) words_left <= words_left - 22'd1;
      if (step) lane <= lane_after[2:0];

      if (key_pop) begin
        slot_ready[read_slot] <= 1'b0;
        read_slot             <= !read_slot;
      end

      unique case (state)
        OPEN: if (in_valid) begin
          lane         <= in_data[2:0];
          words_left   <= in_data[24:3];
          entries_left <= in_data[48:25];
          has_before   <= 1'b0;
          key_length_before <= 8'd0;
          state        <= in_data[63] ? DONE : in_data[48:25] == 24'd0 ? SKIP : FILL;
        end
        FILL: if (window_ready) state <= HEAD;
        HEAD: begin
          header <= turned[39:0];
          if (window_ready) state <= PARSE;
        end
        PARSE: if (step) begin
          shared       <= header[6:0];
          user_length  <= 7'(key_length - 8'd8);
          value_bytes  <= header_value;
          entry_bytes  <= {1'b0, header_value} + {14'b0, key_length} - {15'b0, header[6:0]} + {19'b0, header_bytes};
          shared_left  <= {1'b0, header[6:0]};
          user_left    <= key_length - 8'd8;
          before_left  <= {1'b0, before_length};
          shared_here  <= in_first({1'b0, header[6:0]});
          user_here    <= in_first(key_length - 8'd8);
          before_here  <= in_first({1'b0, before_length});
          take_here    <= take_first;
          turn         <= 3'd0 - before_length[2:0];
          index        <= 3'd0;
          turned_in     <= 1'b0;
          in_trail     <= 1'b0;
          reaches      <= has_before && header[6:0] > before_length;
          state        <= has_before && header[6:0] > before_length ? EXTEND : WORD;
        end
        // The bytes of the old trailer take their place, in a key word or (once the key is whole) in the new trailer.
        EXTEND: begin
          for (int j = 0; j < 8; j++)
            extension[8*j+:8] <= keep[j] && !in_trail ? before_word[8*j+:8] : turned[8*j+:8];
          turned_in <= 1'b1;
          state    <= in_trail ? TRAIL : WORD;
        end
        WORD: if (step) begin
          shared_left <= shared_left > 8'd8 ? shared_left - 8'd8 : 8'd0;
          before_left <= before_left > 8'd8 ? before_left - 8'd8 : 8'd0;
          user_left   <= user_left - 8'd8;
          shared_here <= in_next(shared_left);
          user_here   <= in_next(user_left);
          before_here <= in_next(before_left);
          take_here   <= take_next;
          turned_in    <= 1'b0;
          if (user_left > 8'd8) begin
            index <= index + 3'd1;
            state <= reaches ? EXTEND : WORD;
          end else begin
            shared_here <= trailer_kept;
            take_here   <= 4'd8 - trailer_kept;
            in_trail    <= 1'b1;
            turn        <= user_length[2:0] - before_length[2:0];
            state       <= reaches ? EXTEND : TRAIL;
          end
        end
        TRAIL: if (step) begin
          trailer               <= built;
          has_before            <= 1'b1;
          before_length         <= user_length;
          key_length_before     <= {1'b0, user_length} + 8'd8;
          slot_ready[fill_slot] <= 1'b1;
          slot_value[fill_slot] <= value_bytes;
          fill_slot             <= !fill_slot;
          value_left            <= value_bytes;
          take_here             <= value_bytes[20:3] != 18'd0 ? 4'd8 : {1'b0, value_bytes[2:0]};
          in_trail              <= 1'b0;
          state                 <= value_bytes != 21'd0 ? VALUE : entries_left == 24'd0 ? SKIP : HEAD;
        end
        VALUE: if (step) begin
          value_left <= value_left - 21'd8;
          take_here  <= value_left[20:4] != 17'd0 ? 4'd8 : {1'b0, value_left[2:0]};
          if (value_left <= 21'd8) state <= entries_left == 24'd0 ? SKIP : HEAD;
        end
        SKIP: if (words_left == 22'd0 || (in_pop && words_left == 22'd1)) state <= OPEN;
        DONE: ;
        default: state <= FAIL;
      endcase

      // A cycle behind PARSE the lengths are checked, a cycle later that counts: the record's first words may be in
      // their slot by then, but a job with an error gives nothing.
      check_entry <= state == PARSE && step;
      key_bad     <= check_entry && lengths_bad;
      entry_bad   <= check_entry && (value_long || {2'b0, entry_bytes} > entries_left);
      if (check_entry) entries_left <= entries_left - {2'b0, entry_bytes};
      if (key_bad || entry_bad) begin
        error_code <= key_bad ? ERROR_KEY : ERROR_ENTRY;
        state      <= FAIL;
      end
    end
  end
endmodule
